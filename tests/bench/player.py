# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Players and their turns. A player is a process that prints "ready", and then answers each line with one line (player.c).
All players of a group are alive at the same time, and each runs a cell in its turn while the others wait, so that drift
of the machine affects all of them.
"""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import ctl
import programs

READY_S = 120
SET_UP_S = 60  # allowed for setting up, in addition to the requested time


@dataclasses.dataclass
class Peer:
    """A way to get memory: a program, and its command and environment."""

    name: str
    words: list
    preload: pathlib.Path | None = None
    variables: dict = dataclasses.field(default_factory=dict)
    why_missing: str = ""
    kind: str = ""  # kind of pool that the process has to report
    around: object = contextlib.nullcontext  # active during a running player's turns


@dataclasses.dataclass
class Cell:
    """A request to a player; name is its row of the table, series the rows that are compared with their first."""

    name: str
    request: dict
    series: str = ""
    duration_factor: int = 1  # factor by which a run lasts longer than those of other cells

    def line(self, ms):
        ms *= self.duration_factor
        words = [f"{key}={value}" for key, value in self.request.items() if key != "pattern"]
        return " ".join([self.request["pattern"], *words, f"ms={ms:g}"])


@dataclasses.dataclass
class Group:
    """Cells that one process may run one after the other, because none affects the next."""

    name: str
    cells: list


class Player:
    def __init__(self, peer, directory, log):
        config = programs.Config(peer.name, peer.preload, peer.variables)
        self.peer, self.directory = peer, directory
        self.process = subprocess.Popen(
            [str(word) for word in peer.words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            env=config.environment(directory, {} if peer.preload else peer.variables), text=True,
        )  # fmt: skip

    def receive(self, seconds):
        """One line of the answer, as (word, {key: value})."""
        watchdog = threading.Timer(seconds, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            status = self.process.wait()
            raise programs.Trouble(f"no answer within {seconds:.0f} s" if status == -9 else f"ended with {status}")
        return next(programs.parse_lines(line), ("", {}))

    def ask(self, line, seconds):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise programs.Trouble(f"ended: {error.strerror}") from error
        return self.receive(seconds)

    def status(self, words="status"):
        """gpupool's status of the process, or None if it is not preloaded or has no control socket yet."""
        if not self.peer.preload:
            return None
        try:
            return ctl.ask_process(self.directory, self.process.pid, words)
        except (OSError, ValueError):
            return None

    def bytes_of_libraries(self, names):
        """Device memory that libraries have whose names begin with one of these."""
        callers = (self.status("status callers") or {}).get("callers", [])
        return sum(row["bytes"] - row["pinned_bytes"] - row["unpooled_bytes"]
                   for row in callers if (row["caller"] or "").startswith(tuple(names)))

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def launch(peer, directory, log):
    """Starts a player that may not be ready yet; raises Trouble if it cannot be started."""
    if peer.why_missing:
        raise programs.Trouble(peer.why_missing)
    try:
        return Player(peer, directory, log)
    except OSError as error:
        raise programs.Trouble(str(error)) from error


def wait_ready(player):
    try:
        word, pairs = player.receive(READY_S)
        if word != "ready":
            raise programs.Trouble(f"did not start: {pairs.get('what', word)} {pairs.get('code', '')}".rstrip())
    except programs.Trouble:
        player.close()
        raise


def start(peer, directory, log):
    """Starts a player and waits until it is ready; raises Trouble if that fails."""
    player = launch(peer, directory, log)
    wait_ready(player)
    return player


def start_all(peers, directory, log, miss):
    """Starts players side by side, and returns those that are ready by name; calls miss(name, why) for the others."""
    players = {}
    for what in ("launch", "wait"):
        for peer in peers:
            try:
                if what == "launch":
                    players[peer.name] = launch(peer, directory, log)
                elif peer.name in players:
                    wait_ready(players[peer.name])
            except programs.Trouble as trouble:
                players.pop(peer.name, None)
                miss(peer.name, str(trouble))
    return players


def bind(players, processors):
    for player in players:
        for task in pathlib.Path(f"/proc/{player.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                os.sched_setaffinity(int(task.name), processors)


def share_processors(players, nth):
    """
    Binds all players to the same two processors, chosen by nth, so that other load on them and their clock affect all
    players alike. Only one player has work at a time.
    """
    usable = sorted(os.sched_getaffinity(0))
    bind(players, {usable[(2 * nth + i) % len(usable)] for i in range(2)})


class NoSuchKind(programs.Trouble):
    """The library lacks the requested kind of pool."""


def check_kind(player):
    """
    Raises Trouble if the library runs another kind of pool than requested, as it does with a kind that it does not
    know.
    """
    status = player.status()
    if not player.peer.preload:
        return
    if not status:
        raise programs.Trouble("not under the preload: no control socket")
    if player.peer.kind and status.get("pool") != player.peer.kind:
        raise NoSuchKind(f"this library has no pool of the kind {player.peer.kind}")


def turn(player, cell, ms, seconds=None):
    """Runs a cell once, and returns the player's results as numbers; raises Trouble if it fails."""
    with player.peer.around(player):
        word, pairs = player.ask(cell.line(ms), seconds or SET_UP_S + ms * cell.duration_factor / 1000)
    if word == "error":
        raise programs.Trouble(f"{pairs.get('what')}, error {pairs.get('code')}".replace("_", " "))
    return {key: value if key == "answer" else float(value) for key, value in pairs.items()}


def select_peers(peers, names, miss):
    """The named peers, or all if no names are given; calls miss(name, why) for unknown names."""
    if not names:
        return list(peers)
    for name in names:
        if name not in {peer.name for peer in peers}:
            miss(name, "unknown peer in this part")
    return [peer for peer in peers if peer.name in names]


BEFORE = ", before"  # ends the name of a peer with the other library of --before


def with_before(peers, library):
    """The peers; each that preloads a library is followed by the same peer with the other library."""
    twins = [[peer, dataclasses.replace(peer, name=peer.name + BEFORE, preload=library)] for peer in peers]
    return [peer for peer, twin in twins for peer in ([peer, twin] if peer.preload else [peer])]


STARTS = 5  # of the players with --before: their addresses differ, and so their speed


class Stage:
    """
    Runs groups of cells with all or the named peers in turn, and stores the results in the book. In cells of one thread
    all players share two processors. With another library (before), the named peers that preload one take turns with
    their twins, and new processes run each fifth of the rounds.
    """

    def __init__(self, book, peers, log, rounds, ms, names=(), before=None):
        self.book, self.peers, self.log = book, peers, log
        self.rounds, self.ms, self.names, self.before = rounds, ms, names, before

    def open(self, group, stack):
        def miss(name, why):
            self.book.miss(group.name, "", name, why)

        directory = stack.enter_context(programs.private_dir())
        peers = select_peers(self.peers, self.names, miss)
        peers = with_before(peers, self.before) if self.before else peers
        players = start_all(peers, directory, self.log, miss)
        for found in players.values():
            stack.callback(found.close)
        return players

    def run_cell(self, group, cell, players, rounds):
        """Runs a cell in all players. The first turn of each does not count, since it fills windows and caches."""
        able = []
        for name, player in list(players.items()):
            try:
                turn(player, cell, self.ms)
                check_kind(player)
                able.append(name)
            except programs.Trouble as trouble:
                self.book.miss(group.name, cell.name, name, str(trouble))
                if player.process.poll() is not None or isinstance(trouble, NoSuchKind):
                    del players[name]
        for nth in rounds:
            if cell.request.get("threads", 1) == 1:
                share_processors(players.values(), nth)
            else:
                bind(players.values(), os.sched_getaffinity(0))
            for i in range(len(able)):
                name = able[(i + nth) % len(able)]
                try:
                    found = turn(players[name], cell, self.ms)
                except programs.Trouble as trouble:
                    self.book.miss(group.name, cell.name, name, str(trouble))
                    continue
                self.book.sample(group.name, cell, name, nth, found)

    def run(self, groups):
        starts = min(STARTS, self.rounds) if self.before else 1
        for group in groups:
            for nth in range(starts):
                with contextlib.ExitStack() as stack:
                    players = self.open(group, stack)
                    for cell in group.cells:
                        rounds = range(self.rounds * nth // starts, self.rounds * (nth + 1) // starts)
                        self.run_cell(group, cell, players, rounds)

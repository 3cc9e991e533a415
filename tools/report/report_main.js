// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// The sections "Devices" and "When memory ran out", and the start of the page.

// Adds a key figure: its name, its value, and what the value means.
function addFigure(name, value, detail, isBad) {
	const box = document.createElement('div'), term = document.createElement('dt');
	const number = document.createElement('dd'), more = document.createElement('dd');
	term.textContent = name;
	number.textContent = value;
	more.textContent = detail;
	number.className = isBad ? 'value bad' : 'value';
	box.append(term, number, more);
	$('figures').append(box);
}

const numberText = n => n.toLocaleString('en-US');
const shareText = (part, all) => (Math.floor(1000 * part / all) / 10).toFixed(1) + '%';

function addDriverFigures(f) {
	const calls = f.driver_allocs + f.driver_frees + (f.driver_moves || 0);
	addFigure('Peak taken', bytesText(f.peak_total_bytes), 'from the driver' +
		(f.peak_used_bytes ? `, ${(f.peak_total_bytes / f.peak_used_bytes).toFixed(2)} times the used` : ''));
	addFigure('Hit rate', f.allocs ? shareText(f.hits, f.allocs) : '-',
		`${numberText(f.hits)} of ${numberText(f.allocs)} allocations`);
	addFigure('Driver calls', numberText(calls), `${numberText(f.driver_allocs)} took memory, ` +
		`${numberText(f.driver_frees)} returned` + (f.driver_moves ? `, ${numberText(f.driver_moves)} moved` : ''));
	addFigure('Limit', f.limit_bytes === null ? 'none' : bytesText(f.limit_bytes),
		f.limit_changes ? `changed ${numberText(f.limit_changes)} time${f.limit_changes === 1 ? '' : 's'}` :
			f.limit_bytes ? `${shareText(f.peak_total_bytes, f.limit_bytes)} of it was taken` : 'no limit is set');
}

// Shows the figures of the chosen memory.
function showFigures() {
	const f = facts.figures.find(one => one.number === memory?.number) || facts.figures[0];
	if (!f)
		return;
	show('figures').textContent = '';
	addFigure('Peak used', bytesText(f.peak_used_bytes), facts.figures.length > 1 ? f.name : 'by the program');
	if ('hits' in f)
		addDriverFigures(f);
	else
		addFigure('Allocations', numberText(f.allocs), '');
	const first = facts.refused.find(moment => moment.memory === f.number);
	addFigure('Out-of-memory errors', numberText(f.failed), first ? `the first at ${timeText(first.ns)}` :
		f.failed ? '' : 'no allocation failed', f.failed > 0);
}

function showDevices() {
	for (const device of facts.devices || []) {
		const title = document.createElement('p'), bar = document.createElement('div');
		const parts = ['used', 'cached', 'pending', 'returning', 'outside'].filter(name => device[name] > 0);
		const all = device.total || parts.reduce((sum, name) => sum + device[name], 0) || 1;
		show('devices');
		title.textContent = `${device.name}: ` + parts.map(name => `${name} ${bytesText(device[name])}`).join(', ') +
			(device.total ? ` of ${bytesText(device.total)}` : '') + (device.limit ? `, limit ${bytesText(device.limit)}` : '');
		bar.className = 'bar';
		for (const name of parts) {
			const part = document.createElement('span');
			part.className = name;
			part.style.width = 100 * device[name] / all + '%';
			part.title = `${name} ${bytesText(device[name])}`;
			bar.append(part);
		}
		$('bars').append(title, bar);
	}
}

// Adds a row below that of a failure: the process, the cause and the call site, as in the process's own message.
function addCause(table, episode) {
	const cell = table.insertRow().insertCell(), text = document.createElement('div');
	const lines = ['process: ' + episode.process, 'cause: ' + episode.cause];
	if (episode.requested_at)
		lines.push('requested at: ' + episode.requested_at);
	cell.colSpan = 8;
	cell.className = 'text cause';
	text.textContent = lines.join('\n');
	cell.append(text);
}

function showRounds() {
	const table = $('round-table');
	if (facts.oom)
		show('oom').textContent = facts.oom;
	if (facts.rounds?.length) {
		addRow(table, ['Memory', 'Retry round', 'Count', 'Gained', 'Duration'], true, 9);
		for (const r of facts.rounds)
			addRow(table, [r.memory, r.name, r.count, bytesText(r.gained_bytes || 0), timeText(r.ns || 0)], false, 9);
	} else if (facts.episodes?.length) {
		addRow(table, ['Time', 'Duration', 'Thread', 'Memory', 'Requested', 'Driver refusals',
			'Released', 'Result'], true, 9);
		for (const e of facts.episodes) {
			addRow(table, [timeText(e.ns), timeText(e.took_ns), e.thread, e.memory, bytesText(e.requested_bytes), e.n_denied,
				bytesText(e.returned_bytes), e.is_served ? 'served' : 'failed'], false, 9);
			if (e.cause)
				addCause(table, e);
		}
	}
	if (facts.oom || table.rows.length)
		show('rounds');
}

function drawAll() {
	if (!$('timeline').hidden)
		drawCurve();
	if (state)
		drawMap();
	if (flame.root)
		drawFlame();
	drawTimelines();
}

function choose(number) {
	memory = facts.memories.find(m => m.number === number) || memory;
	$('memory').value = memory.number;
	showFigures();
	drawAll();
}

function showMemories() {
	for (const m of facts.memories)
		$('memory').add(new Option(m.name, m.number));
	$('choice').hidden = facts.memories.length < 2;
	$('memory').addEventListener('change', () => choose(Number($('memory').value)));
	if (facts.memories.some(m => m.samples.length)) {
		show('timeline');
		listenToCurve();
	}
}

// Returns the moment to show first: the first failed allocation or, if none failed, the highest use, within the events
// of the map. The end of a program is a bad choice, since it has often freed everything by then.
function momentOfInterest() {
	const since = state?.events.nBefore ? state.events.ns[0] : 0;
	const refused = facts.refused.find(moment => moment.memory === memory.number && moment.ns >= since);
	const most = memory.samples.reduce(
		(best, sample) => sample[0] >= since && sample[1] > best[1] ? sample : best, [curve.cursor, -1]);
	return refused ? refused.ns : most[0];
}

// In the address of the page, "#at=0.5" chooses the moment in the middle, and "#memory=64" the pinned memory.
function followLink() {
	const wanted = new URLSearchParams(location.hash.slice(1));
	if (wanted.has('memory'))
		choose(Number(wanted.get('memory')));
	moveTo(wanted.has('at') ? Number(wanted.get('at')) * (facts.duration_ns || 0) : momentOfInterest());
}

async function main() {
	document.title = facts.title + ' - gpupool';
	$('title').textContent = facts.title;
	$('summary').textContent = facts.summary;
	if (facts.notes.length)
		show('notes').textContent = facts.notes.join('\n');
	showFigures();
	showDevices();
	showRecordings();
	showSites();
	showRounds();
	if (memory) {
		showMemories();
		await loadEvents();
		followLink();
		addEventListener('hashchange', followLink);
	}
	addEventListener('resize', drawAll);
	document.documentElement.dataset.ready = 'yes';
}

main().catch(error => {
	show('notes').textContent = 'This report could not be drawn: ' + error.message;
});

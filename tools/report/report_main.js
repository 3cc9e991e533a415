// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// The sections "Devices" and "When memory ran out", and the start of the page.

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

function showRounds() {
	const table = $('round-table');
	if (facts.oom)
		show('oom').textContent = 'Out of memory: ' + facts.oom;
	if (facts.rounds?.length) {
		addRow(table, ['Memory', 'Retry round', 'Count', 'Made available', 'Duration'], true, 9);
		for (const r of facts.rounds)
			addRow(table, [r.memory, r.name, r.count, bytesText(r.yielded_bytes || 0), timeText(r.ns || 0)], false, 9);
	} else if (facts.episodes?.length) {
		addRow(table, ['Time', 'Duration', 'Thread', 'Memory', 'Requested', 'Driver refusals',
			'Returned to driver', 'Result'], true, 9);
		for (const e of facts.episodes)
			addRow(table, [timeText(e.ns), timeText(e.took_ns), e.thread, e.memory, bytesText(e.asked_bytes), e.n_denied,
				bytesText(e.returned_bytes), e.is_served ? 'served' : 'failed'], false, 9);
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
}

function choose(number) {
	memory = facts.memories.find(m => m.number === number) || memory;
	$('memory').value = memory.number;
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
	showDevices();
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

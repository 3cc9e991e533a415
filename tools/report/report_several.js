// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// The section "Recordings" of a report of several recordings: a row with a timeline for each memory of each of them.

const timelines = []; // the canvas, row and memory of each

function addTimeline(table, m) {
	const f = facts.figures.find(one => one.number === m.number), canvas = document.createElement('canvas');
	const row = addRow(table, [m.name, '', bytesText(m.peak_used_bytes), bytesText(m.peak_total_bytes),
		f && f.allocs ? shareText(f.hits, f.allocs) : '-', f ? numberText(f.failed) : '-']);
	row.cells[0].className = row.cells[1].className = 'name';
	canvas.className = 'small';
	canvas.role = 'img';
	canvas.ariaLabel = `${m.name}: at most ${bytesText(m.peak_used_bytes)} used, ${bytesText(m.peak_total_bytes)} total`;
	row.cells[1].append(canvas);
	row.addEventListener('click', () => choose(m.number));
	timelines.push({canvas, row, m});
}

function showRecordings() {
	const table = $('recording-table');
	if (facts.source !== 'recordings')
		return;
	const head = addRow(table, ['Recording', 'Memory over time', 'Peak used', 'Peak taken', 'Hit rate', 'Errors'], true, 9);
	head.cells[0].className = head.cells[1].className = 'name';
	document.querySelector('#timeline .hint').textContent = 'Wheel: zoom. Double click: show the whole time.';
	facts.memories.forEach(m => addTimeline(table, m));
	show('recordings').title = facts.recordings.join('\n');
}

function drawTimelines() {
	const most = Math.max(1, ...facts.memories.map(m => Math.max(m.peak_used_bytes, m.peak_total_bytes)));
	for (const {canvas, row, m} of timelines) {
		const [context, width, height] = begin(canvas);
		const x = ns => ns / (facts.duration_ns || 1) * width, y = bytes => height - bytes / most * height;
		row.className = m === memory ? 'chosen' : '';
		context.fillStyle = colour('cached');
		fillSteps(context, m.samples, s => Math.max(s[1], s[2]), x, y, width, height);
		context.fillStyle = colour('used');
		fillSteps(context, m.samples, s => s[1], x, y, width, height);
		context.fillStyle = colour('bad');
		for (const moment of facts.refused)
			if (moment.memory === m.number)
				context.fillRect(x(moment.ns) - 1, 0, 2, height);
	}
}

// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// The section "Memory over time".

const curve = {from: 0, to: facts.duration_ns || 1, cursor: facts.duration_ns || 0};
// A process may have figures of memory of which it holds no segment now.
for (const {number, name} of facts.figures)
	if (!facts.memories.some(m => m.number === number))
		facts.memories.push({number, name, peak_used_bytes: 0, peak_total_bytes: 0, samples: []});
let memory = facts.memories[0];

// Writes a text with an outline, so that it can be read on any background.
function writeOn(context, text, x, y) {
	context.lineWidth = 3;
	context.lineJoin = 'round';
	context.strokeStyle = colour('panel');
	context.strokeText(text, x, y);
	context.fillStyle = colour('front');
	context.fillText(text, x, y);
}

function axis(context, width, height, top, most) {
	context.textAlign = 'left';
	for (let i = 0; i <= 4; i++) {
		const y = height - (height - top) * i / 4;
		context.fillStyle = colour('soft');
		context.globalAlpha = .35;
		context.fillRect(0, y - (i === 0), width, 1);
		context.globalAlpha = 1;
		if (i)
			writeOn(context, bytesText(most * i / 4), 4, y + 14);
	}
}

// Returns the highest value of a step curve in each column of pixels, so that a short peak can be seen.
function columnsOf(samples, pick, x, width) {
	const columns = new Float64Array(Math.ceil(width) + 1);
	let last = 0, column = 0;
	for (const sample of samples) {
		const at = Math.floor(x(sample[0])), value = pick(sample);
		if (at >= columns.length)
			break;
		for (; column < at; column++)
			columns[column] = Math.max(columns[column], last);
		if (at >= 0)
			columns[at] = Math.max(columns[at], last, value);
		last = value;
	}
	for (; column < columns.length; column++)
		columns[column] = Math.max(columns[column], last);
	return columns;
}

// Fills the area below a step curve, from the left edge to the right.
function fillSteps(context, samples, pick, x, y, width, floor) {
	context.beginPath();
	context.moveTo(0, floor);
	columnsOf(samples, pick, x, width).forEach((value, column) => {
		context.lineTo(column, y(value));
		context.lineTo(column + 1, y(value));
	});
	context.lineTo(width, floor);
	context.fill();
}

// The limit belongs to the scale of the curve, unless it is so high that the curve would be flat below it.
function mostBytes() {
	const most = Math.max(1, memory.peak_used_bytes, memory.peak_total_bytes);
	const limits = (memory.limits || []).map(limit => limit[1]).filter(bytes => bytes !== null && bytes <= 3 * most);
	return Math.max(most, ...limits);
}

// Draws the limit as a line, which steps when the limit changes.
function drawLimit(context, x, y, width, top, most) {
	const limits = memory.limits || [];
	$('limit-key').hidden = !limits.some(limit => limit[1] !== null);
	context.strokeStyle = colour('limit');
	context.lineWidth = 2;
	context.setLineDash([6, 4]);
	context.beginPath();
	let last = null, end = 0;
	limits.forEach(([ns, bytes], i) => {
		const from = Math.max(0, x(ns)), to = i + 1 < limits.length ? Math.min(width, x(limits[i + 1][0])) : width;
		if (bytes === null || bytes > most || to < 0 || from > width) {
			last = null;
			return;
		}
		if (last === null)
			context.moveTo(from, y(bytes));
		else
			context.lineTo(from, y(bytes));
		context.lineTo(to, y(bytes));
		last = bytes;
		end = to;
	});
	context.stroke();
	context.setLineDash([]);
	const bytes = limits.length ? limits[limits.length - 1][1] : null;
	context.textAlign = 'right';
	if (last !== null)
		writeOn(context, `limit ${bytesText(last)}`, end - 6, y(last) < top + 20 ? y(last) + 15 : y(last) - 5);
	else if (bytes !== null)
		writeOn(context, `the limit, ${bytesText(bytes)}, is above this curve`, width - 6, top + 14);
	context.textAlign = 'left';
}

function drawCurve() {
	const [context, width, height] = begin($('curve'));
	const top = 8, floor = height - 18, most = mostBytes();
	const x = ns => (ns - curve.from) / (curve.to - curve.from) * width;
	const y = bytes => floor - bytes / most * (floor - top);
	context.fillStyle = colour('cached');
	fillSteps(context, memory.samples, s => Math.max(s[1], s[2]), x, y, width, floor);
	context.fillStyle = colour('used');
	fillSteps(context, memory.samples, s => s[1], x, y, width, floor);
	axis(context, width, floor, top, most);
	context.fillStyle = colour('bad');
	for (const moment of facts.refused)
		if (moment.memory === memory.number)
			context.fillRect(x(moment.ns) - 1, top, 2, floor - top);
	drawLimit(context, x, y, width, top, most);
	context.fillStyle = colour('mark');
	context.fillRect(x(curve.cursor) - .5, 0, 1, floor);
	context.fillStyle = colour('soft');
	context.fillText(timeText(curve.from), 4, height - 4);
	context.textAlign = 'right';
	context.fillText(timeText(curve.to), width - 4, height - 4);
	$('curve').ariaLabel = `${memory.name}: at most ${bytesText(memory.peak_used_bytes)} used, ` +
		`${bytesText(memory.peak_total_bytes)} total, ${memory.samples.length} points` +
		limitText(memory.limits);
}

function limitText(limits) {
	const last = limits?.length ? limits[limits.length - 1][1] : null;
	return last === null ? '' : `, limit ${bytesText(last)}`;
}

function sampleAt(ns) {
	let from = 0, to = memory.samples.length;
	while (from < to) {
		const middle = from + to >> 1;
		if (memory.samples[middle][0] <= ns)
			from = middle + 1;
		else
			to = middle;
	}
	return memory.samples[from - 1] || [0, 0, 0];
}

const nsAt = event => curve.from + event.offsetX / $('curve').clientWidth * (curve.to - curve.from);

function zoom(event) {
	const factor = event.deltaY > 0 ? 1.25 : .8, at = nsAt(event), end = facts.duration_ns || 1;
	event.preventDefault();
	curve.from = Math.max(0, at - (at - curve.from) * factor);
	curve.to = Math.min(end, Math.max(curve.from + 10, at + (curve.to - at) * factor));
	drawCurve();
}

function listenToCurve() {
	const canvas = $('curve');
	canvas.addEventListener('click', event => moveTo(nsAt(event)));
	canvas.addEventListener('wheel', zoom, {passive: false});
	canvas.addEventListener('dblclick', () => {
		curve.from = 0;
		curve.to = facts.duration_ns || 1;
		drawCurve();
	});
	canvas.addEventListener('mouseleave', event => tip(event, ''));
	canvas.addEventListener('mousemove', event => {
		const [, used, reserved] = sampleAt(nsAt(event));
		tip(event, `${timeText(nsAt(event))}\nused ${bytesText(used)}\nunused ` +
			bytesText(Math.max(0, reserved - used)));
	});
	canvas.addEventListener('keydown', event => {
		const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
		if (step && state)
			showEvent(Math.max(0, Math.min(state.events.n, state.at + step)), true);
	});
}


// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// The section "Memory map": the segments and blocks at a moment. All segments lie in one long row, which is broken into
// the rows of the canvas; an offset is a position in the long row, in units of UNIT bytes.

let state = null, drawn = []; // drawn: the segments and blocks on the canvas, with their offsets, for the pointer

const count = (list, word) => `${list.length} ${word}${list.length === 1 ? '' : 's'}`;

function entriesOf(map) {
	return [...map].filter(([, entry]) => entry.memory === memory.number).sort((a, b) => a[0] - b[0]);
}

// Fills the rectangles on the canvas for the offsets from..to.
function fillRange(context, layout, from, to) {
	while (from < to) {
		const row = Math.floor(from / layout.perRow + 1e-9), end = Math.min(to, (row + 1) * layout.perRow);
		const x = (from - row * layout.perRow) * layout.scale;
		context.fillRect(x, row * layout.rowHeight, Math.max(.7, (end - from) * layout.scale), layout.rowHeight - 3);
		if (end <= from)
			return;
		from = end;
	}
}

function layOut(segments, width, height) {
	const total = segments.reduce((sum, [, s]) => sum + s.size, 0) || 1;
	const rows = Math.max(1, Math.floor(height / ROW)), perRow = Math.max(1, total / rows);
	return {rows, perRow, total, scale: width / perRow, rowHeight: height / rows, starts: []};
}

function drawMap() {
	const [context, width, height] = begin($('map'));
	const segments = entriesOf(state.segments), blocks = entriesOf(state.blocks);
	const layout = layOut(segments, width, height);
	let offset = 0, next = 0, used = 0;
	drawn = [];
	for (const [address, segment] of segments) {
		context.fillStyle = colour('cached');
		fillRange(context, layout, offset, offset + segment.size);
		drawn.push({from: offset, to: offset + segment.size, address, segment});
		while (next < blocks.length && blocks[next][0] < address)
			next++;
		for (; next < blocks.length && blocks[next][0] < address + segment.size; next++)
			used += drawBlock(context, layout, offset - address, ...blocks[next]);
		context.fillStyle = colour('mark');
		fillRange(context, layout, offset, offset + layout.perRow / width);
		offset += segment.size;
	}
	layoutNow = layout;
	$('map').ariaLabel = `${memory.name}: ${count(segments, 'segment')}, ${count(blocks, 'block')}, ` +
		`${bytesText(used * UNIT)} of ${bytesText((segments.length ? layout.total : 0) * UNIT)}`;
	$('map-summary').textContent = $('map').ariaLabel;
}

let layoutNow = null;

function drawBlock(context, layout, shift, address, block) {
	const from = address + shift, asked = Math.min(block.size, block.asked / UNIT);
	const isOdd = drawn.length % 2;
	context.fillStyle = colour(block.isPending ? 'pending' : 'used');
	context.globalAlpha = isOdd ? .75 : 1; // neighbours differ
	fillRange(context, layout, from, from + (block.isPending ? block.size : asked));
	context.globalAlpha = 1;
	if (!block.isPending && asked < block.size && (block.size - asked) * layout.scale >= .5) {
		context.fillStyle = colour('waste');
		fillRange(context, layout, from + asked, from + block.size);
	}
	drawn.push({from, to: from + block.size, address, block});
	return block.size;
}

function entryText(found) {
	const what = found.block ? (found.block.isPending ? 'pending' : 'used') : 'unused memory of a segment';
	const entry = found.block || found.segment;
	return `${what}\n${addressText(found.address)}  ${bytesText(entry.size * UNIT)}` +
		(found.block && !found.block.isPending ? `, ${bytesText(entry.asked)} requested` : '');
}

function pointAtMap(event) {
	const row = Math.floor(event.offsetY / layoutNow.rowHeight);
	const offset = row * layoutNow.perRow + event.offsetX / layoutNow.scale;
	let found = null;
	for (const entry of drawn)
		if (entry.from <= offset && offset < entry.to && (!found || entry.block))
			found = entry;
	tip(event, found && entryText(found));
}

// The first nBefore events only build the state before the first event of the map: no moment among them can be shown.
function showEvent(wanted, movesCursor) {
	const events = state.events, index = Math.max(wanted, events.nBefore);
	state.seek(index);
	$('position').value = index;
	const ns = index ? events.ns[index - 1] : 0;
	if (movesCursor || index !== wanted)
		curve.cursor = ns;
	$('moment').textContent = events.isOneMoment ? 'now' :
		`after event ${index - events.nBefore} of ${events.n - events.nBefore}, ${timeText(ns)}`;
	drawMap();
	if (!$('timeline').hidden)
		drawCurve();
}

function moveTo(ns) {
	curve.cursor = Math.max(0, Math.min(facts.duration_ns || 0, ns));
	if (!state) {
		drawCurve();
		return;
	}
	let from = 0, to = state.events.n;
	while (from < to) {
		const middle = from + to >> 1;
		if (state.events.ns[middle] <= curve.cursor)
			from = middle + 1;
		else
			to = middle;
	}
	showEvent(from, false);
}

async function loadEvents() {
	const packed = $('events');
	if (!packed || !facts.n_events)
		return;
	const events = decode(await unpack(packed.textContent.trim()), facts.n_events);
	events.isOneMoment = facts.source === 'process';
	events.nBefore = facts.n_before || 0;
	state = new State(events);
	show('layout');
	$('position').min = events.nBefore;
	$('position').max = events.n;
	$('position').hidden = events.isOneMoment;
	$('position').addEventListener('input', () => showEvent(Number($('position').value), true));
	$('map').addEventListener('mousemove', pointAtMap);
	$('map').addEventListener('mouseleave', event => tip(event, ''));
}


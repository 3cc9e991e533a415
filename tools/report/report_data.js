// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// Helpers for texts and canvases, and the events, which lead to the state at any moment. No part of the data is parsed
// as markup: texts go into text nodes and onto canvases.

const facts = JSON.parse(document.getElementById('facts').textContent);
const $ = id => document.getElementById(id);
const UNIT = 512; // bytes; events have addresses and sizes in this unit
const KIND = {segmentNew: 0, segmentReleased: 1, blockNew: 2, blockFreed: 3, pendingNew: 4};
const CHECKPOINT = 50000; // events between two checkpoints
const ROW = 18; // pixels

const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

function bytesText(bytes) {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
	let i = 0;
	for (; bytes >= 1023.5 && i < units.length - 1; i++)
		bytes /= 1024;
	return (i && bytes < 100 ? bytes.toPrecision(3) : Math.round(bytes)) + ' ' + units[i];
}

function timeText(ns) {
	if (facts.is_text)
		return 'operation ' + Math.round(ns / 1000);
	for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]])
		if (ns >= size)
			return (ns / size).toPrecision(4) + ' ' + unit;
	return ns + ' ns';
}

const addressText = units => '0x' + (BigInt(units) * BigInt(UNIT)).toString(16);

function show(id) {
	$(id).hidden = false;
	return $(id);
}

// Clears a canvas and sets it to the resolution of the screen. Returns its context, and width and height in CSS pixels.
function begin(canvas) {
	const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
	canvas.width = Math.round(width * ratio);
	canvas.height = Math.round(height * ratio);
	const context = canvas.getContext('2d');
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.font = '12px system-ui, sans-serif';
	return [context, width, height];
}

function tip(event, text) {
	const box = $('tip');
	box.hidden = !text;
	if (!text)
		return;
	box.textContent = text;
	box.style.left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8) + 'px';
	box.style.top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8) + 'px';
}

function addRow(table, cells, isHead, textFrom) {
	const row = table.insertRow();
	cells.forEach((text, i) => {
		const cell = document.createElement(isHead ? 'th' : 'td');
		cell.textContent = text;
		if (i >= textFrom)
			cell.className = 'text';
		row.append(cell);
	});
	return row;
}

// Unpacks events as report_events.c packs them.

async function unpack(text) {
	const packed = Uint8Array.from(atob(text), c => c.charCodeAt(0));
	const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
	return new Uint8Array(await new Response(stream).arrayBuffer());
}

function decode(bytes, n) {
	const events = {n, kind: new Uint8Array(n), memory: new Uint8Array(n), ns: new Float64Array(n),
		address: new Float64Array(n), size: new Float64Array(n), asked: new Float64Array(n)};
	let at = 0, ns = 0, address = 0;
	const varint = () => {
		let value = 0, scale = 1, byte;
		do {
			byte = bytes[at++];
			value += (byte & 127) * scale;
			scale *= 128;
		} while (byte > 127);
		return value;
	};
	for (let i = 0; i < n; i++) {
		events.kind[i] = bytes[at++];
		events.memory[i] = bytes[at++];
		events.ns[i] = ns += varint();
		const folded = varint();
		events.address[i] = address += folded % 2 ? -(folded + 1) / 2 : folded / 2;
		if (events.kind[i] === KIND.segmentReleased || events.kind[i] === KIND.blockFreed)
			continue;
		events.size[i] = varint();
		events.asked[i] = varint();
	}
	return events;
}

// The segments and blocks after a number of events. To go back, it restores the last checkpoint before the target.
class State {
	constructor(events) {
		this.events = events;
		this.checkpoints = [];
		this.at = 0;
		this.segments = new Map();
		this.blocks = new Map();
	}

	step() {
		const e = this.events, i = this.at++, entry = {memory: e.memory[i], size: e.size[i], asked: e.asked[i],
			isPending: e.kind[i] === KIND.pendingNew};
		if (e.kind[i] === KIND.segmentNew)
			this.segments.set(e.address[i], entry);
		else if (e.kind[i] === KIND.segmentReleased)
			this.segments.delete(e.address[i]);
		else if (e.kind[i] === KIND.blockFreed)
			this.blocks.delete(e.address[i]);
		else
			this.blocks.set(e.address[i], entry);
	}

	seek(target) {
		const nth = Math.min(Math.floor(target / CHECKPOINT), this.checkpoints.length - 1);
		if (target < this.at || (nth >= 0 && this.checkpoints[nth].at > this.at)) {
			const from = this.checkpoints[nth];
			this.at = from.at;
			this.segments = new Map(from.segments);
			this.blocks = new Map(from.blocks);
		}
		for (;;) {
			if (this.at === this.checkpoints.length * CHECKPOINT)
				this.checkpoints.push({at: this.at, segments: new Map(this.segments), blocks: new Map(this.blocks)});
			if (this.at >= target)
				return;
			this.step();
		}
	}
}


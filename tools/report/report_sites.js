// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// The section "Call sites": a flame graph and a table.

// Makes the tree of all stacks, with the outermost frames at its root.
function makeTree(sites) {
	const root = {name: 'all', bytes: 0, blocks: 0, children: new Map(), depth: 0, parent: null};
	for (const site of sites) {
		let node = root;
		for (const name of ['', ...site.frames]) {
			if (name) {
				let child = node.children.get(name);
				if (!child)
					node.children.set(name, child = {name, bytes: 0, blocks: 0, children: new Map(),
						depth: node.depth + 1, parent: node});
				node = child;
			}
			node.bytes += site.bytes;
			node.blocks += site.blocks;
		}
	}
	return root;
}

const flame = {root: null, top: null, rects: [], search: ''};
const depthOf = node => Math.max(node.depth, ...[...node.children.values()].map(depthOf));

function frameColour(node) {
	let hash = 7;
	for (const c of node.name)
		hash = (hash * 31 + c.codePointAt(0)) % 360;
	if (flame.search)
		return node.name.toLowerCase().includes(flame.search) ? colour('pending') : colour('line');
	return `hsl(${15 + hash % 40} 70% ${matchMedia('(prefers-color-scheme: dark)').matches ? 38 : 72}%)`;
}

function drawFrame(context, node, x, width) {
	const y = node.depth * ROW;
	if (width < .5)
		return;
	context.fillStyle = frameColour(node);
	context.fillRect(x, y, Math.max(.5, width - 1), ROW - 1);
	flame.rects.push({x, y, width, node});
	if (width > 30) {
		context.save();
		context.beginPath();
		context.rect(x, y, width - 2, ROW);
		context.clip();
		context.fillStyle = colour('front');
		context.fillText(node.name, x + 3, y + 13);
		context.restore();
	}
	let at = x;
	for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
		const share = width * child.bytes / (node.bytes || 1);
		drawFrame(context, child, at, share);
		at += share;
	}
}

function drawFlame() {
	$('flame').style.height = (depthOf(flame.top) + 1) * ROW + 'px';
	const [context, width] = begin($('flame'));
	flame.rects = [];
	for (let node = flame.top.parent; node; node = node.parent) {
		context.fillStyle = colour('line');
		context.fillRect(0, node.depth * ROW, width, ROW - 1);
		context.fillStyle = colour('soft');
		context.fillText(node.name, 3, node.depth * ROW + 13);
		flame.rects.push({x: 0, y: node.depth * ROW, width, node});
	}
	drawFrame(context, flame.top, 0, width);
	$('flame').ariaLabel = `${flame.rects.length} frames, ${bytesText(flame.root.bytes)}`;
}

const rectAt = event => flame.rects.find(r => event.offsetX >= r.x && event.offsetX < r.x + r.width &&
	event.offsetY >= r.y && event.offsetY < r.y + ROW);

function fillSites(key, sign) {
	const table = $('site-table');
	table.textContent = '';
	const head = addRow(table, ['Bytes', 'Blocks', 'Where'], true, 2);
	['bytes', 'blocks'].forEach((name, i) => {
		head.cells[i].dataset.key = name;
		head.cells[i].addEventListener('click', () => fillSites(name, key === name ? -sign : -1));
	});
	const sites = facts.sites.filter(s => s.frames.join(' ').toLowerCase().includes(flame.search));
	sites.sort((a, b) => sign * (a[key] - b[key]));
	for (const site of sites.slice(0, 500))
		addRow(table, [bytesText(site.bytes), site.blocks, [...site.frames].reverse().join(' < ')], false, 2);
	$('found').textContent = `${sites.length} of ${facts.sites.length} sites` +
		(sites.length > 500 ? ', the first 500 of them below' : '');
}

function showSites() {
	if (!facts.sites)
		return;
	show('sites');
	if (facts.held)
		$('held').textContent = facts.held;
	flame.root = flame.top = makeTree(facts.sites);
	$('flame').addEventListener('click', event => {
		flame.top = rectAt(event)?.node || flame.top;
		drawFlame();
	});
	$('flame').addEventListener('mousemove', event => {
		const node = rectAt(event)?.node;
		tip(event, node && `${node.name}\n${bytesText(node.bytes)} in ${node.blocks} blocks, ` +
			`${(100 * node.bytes / (flame.root.bytes || 1)).toFixed(1)}%`);
	});
	$('flame').addEventListener('mouseleave', event => tip(event, ''));
	$('out').addEventListener('click', () => {
		flame.top = flame.root;
		drawFlame();
	});
	$('search').addEventListener('input', () => {
		flame.search = $('search').value.toLowerCase();
		drawFlame();
		fillSites('bytes', -1);
	});
	drawFlame();
	fillSites('bytes', -1);
}


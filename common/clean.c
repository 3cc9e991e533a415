/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "clean.h"

#include <stdbool.h>
#include <string.h>

uint32_t gp_utf8_decode(const char *text, size_t *length)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c = s[0];
	size_t n = c < 0x80 ? 1 : (c & 0xe0) == 0xc0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : 4;

	*length = 1;
	if (n == 1)
		return c;
	if (n == 4 && (c & 0xf8) != 0xf0)
		return 0;
	c &= 0x7fu >> n;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*length = n;
	return c;
}

/* In ascending order, with a gap between each range and the next. */
static const struct {
	uint32_t first, last;
} hidden[] = {
	{0, 0x1f},          /* control characters, and 0 for invalid UTF-8 */
	{0x7f, 0x9f},       /* DEL, and the control characters of ISO 6429, such as CSI */
	{0xad, 0xad},       /* soft hyphen */
	{0x34f, 0x34f},     /* combining grapheme joiner */
	{0x61c, 0x61c},     /* Arabic letter mark */
	{0x115f, 0x1160},   /* Hangul fillers */
	{0x17b4, 0x17b5},   /* Khmer vowels that are not written */
	{0x180b, 0x180f},   /* Mongolian variation selectors and separator */
	{0x200b, 0x200f},   /* zero width space and joiners; direction marks */
	{0x2028, 0x202e},   /* line and paragraph separators; embedding and overriding of directions */
	{0x2060, 0x206f},   /* word joiner, invisible operators; isolating directions */
	{0x3164, 0x3164},   /* Hangul filler */
	{0xfe00, 0xfe0f},   /* variation selectors */
	{0xfeff, 0xfeff},   /* zero width no-break space */
	{0xffa0, 0xffa0},   /* halfwidth Hangul filler */
	{0xfff0, 0xfffb},   /* annotation marks */
	{0x1bca0, 0x1bca3}, /* shorthand controls */
	{0x1d173, 0x1d17a}, /* musical controls */
	{0xe0000, 0xe0fff}, /* tags, further variation selectors */
};

static bool is_shown(uint32_t c)
{
	size_t i = 0, n = sizeof(hidden) / sizeof(hidden[0]);

	while (i < n && c > hidden[i].last)
		i++;
	return i == n || c < hidden[i].first;
}

void gp_clean(char *clean, size_t size, const char *text)
{
	size_t used = 0, length;

	for (; *text; text += length) {
		bool is_kept = is_shown(gp_utf8_decode(text, &length));
		size_t n = is_kept ? length : 1;

		if (used + n >= size)
			break;
		if (is_kept)
			memmove(clean + used, text, n);
		else
			clean[used] = '?';
		used += n;
	}
	clean[used] = '\0';
}

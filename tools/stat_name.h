/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Names of functions that are too long for a line. A text of frames is "Grid::grow (grid.cpp:212) < main (main.cpp:7)":
 * what becomes shorter is the name of a frame, never its file and line.
 */

#include <stddef.h>

/* Between two frames of one text, the inner one first. */
#define STAT_FRAMES_BETWEEN " < "

/*
 * In place: "std::vector<float, std::allocator<float> >::push_back" becomes "std::vector<...>::push_back", and a name
 * that is still longer than 200 bytes loses its middle. Lists of template arguments of up to 24 bytes stay.
 */
void stat_name_shorten(char *text);

/* In place: the first frame's name loses its middle, so that the frame fits that many columns if its file does. */
void stat_name_fit(char *text, size_t columns);

/* Where the " (file:line)" of a single frame begins; the end of the text if it has none. */
const char *stat_name_end(const char *frame, size_t length);

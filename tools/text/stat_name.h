/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shortens names of functions that are too long for a line. A text of frames is "Grid::grow (grid.cpp:212) < main
 * (main.cpp:7)". Only the name of a frame becomes shorter, never its file and line.
 */

#include <stddef.h>

/* Separates two frames of a text, of which the inner one comes first. */
#define STAT_FRAMES_BETWEEN " < "

/*
 * Shortens the names of all frames in place: "std::vector<float, std::allocator<float> >::push_back" becomes
 * "std::vector<...>::push_back", and a name that is still longer than 200 bytes loses its middle. Lists of template
 * arguments of up to 24 bytes stay.
 */
void stat_name_shorten(char *text);

/* Cuts the middle of the first frame's name in place, so that the frame fits the columns if its file and line do. */
void stat_name_fit(char *text, size_t columns);

/* Returns where the " (file:line)" of a single frame begins, or the end of the text if it has none. */
const char *stat_name_end(const char *frame, size_t length);

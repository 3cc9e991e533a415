/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The cause of an out-of-memory error in words. The message of the library has amounts; gpupool-stat and reports have
 * only the cause's name, and words in place of the amounts (oom_cause.def). how_much: either of these, with its verb
 * where it is the subject.
 */

#define GP_OOM_BEYOND_DEVICE_WORDS        "the request is larger than the device"
#define GP_OOM_BEYOND_MACHINE_WORDS       "the request is larger than the machine's memory"
#define GP_OOM_BEYOND_LIMIT_WORDS         "the request is larger than the limit"
#define GP_OOM_LIMITED_WORDS              "the limit is reached"
#define GP_OOM_GROUP_WORDS                "the limit of the group is reached"
#define GP_OOM_FULL_WORDS                 "the device is full"
#define GP_OOM_FULL_PINNED_WORDS          "no pinned memory is left"
#define GP_OOM_FRAGMENTED_WORDS(how_much) "fragmentation: " how_much " cached between blocks that the program holds"
#define GP_OOM_OTHERS_WORDS(how_much)     "the device is full: other processes, or CUDA itself, use " how_much
#define GP_OOM_REFUSED_WORDS(how_much)    "the driver refused the request although " how_much " free"
#define GP_OOM_PENDING_WORDS(how_much)    "the GPU may still be using " how_much " that the program has freed"
#define GP_OOM_ROUNDED_WORDS(how_much)    "rounding: " how_much " more than the program requested"

/* Reasons for which an allocation has not waited for other processes. */
#define GP_OOM_NO_WAIT_WORDS            "no wait for other processes: "
#define GP_OOM_NO_WAIT_TOO_LITTLE_WORDS "not even all that they hold would have been enough"
#define GP_OOM_NO_WAIT_CAPTURE_WORDS    "a stream captures"
#define GP_OOM_NO_WAIT_SPENT_WORDS      "this process has waited for them too long within the last minute"

/* Words for the answer of the exporter that passes requests on between users (broker.h). */
#define GP_OOM_BROKER_WORDS         "processes of other users and containers"
#define GP_OOM_BROKER_REFUSED_WORDS "refused to ask " GP_OOM_BROKER_WORDS
#define GP_OOM_BROKER_BUSY_WORDS    "was busy, or this user has asked too much within the last minute"
#define GP_OOM_BROKER_SILENT_WORDS  "did not answer"
#define GP_OOM_BROKER_INVALID_WORDS "gave an invalid answer"

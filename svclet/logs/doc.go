// Package logs looks after the log files of containers, which the runtime
// writes: it rotates and compresses those that have grown too large, links them
// where collectors of logs look for them, and removes those of containers and
// pods that are gone.
//
// A log, say 0.log, becomes 0.log.20060102-150405 when it is rotated, and
// 0.log.20060102-150405.gz at the rotation after that, by when those who follow
// it have read it. Whatever a crash leaves behind is put in order at the next
// rotation. Names, places and limits are those of kubelet 1.36.
package logs

package main

import (
	"testing"
	"time"
)

func TestStatIsReadBehindACommandWithSpacesAndParentheses(t *testing.T) {
	const line = "4242 (a (b) c) S 1 4000 4000 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 9 0 12345 1000 200 18446744073709551615\n"
	got, err := parseStat([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if want := (processStat{pid: 4242, group: 4000, cpu: 1750 * time.Millisecond}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestKilobytesFindsTheWholeName(t *testing.T) {
	const rollup = "Pss_Anon:    7 kB\nPss:         2048 kB\nRss: 4096 kB\n"
	if got, err := kilobytes([]byte(rollup), "Pss"); err != nil || got != 2048<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := kilobytes([]byte(rollup), "Swap"); err == nil {
		t.Error("no error for a line that is not there")
	}
}

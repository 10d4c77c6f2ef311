package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	testclock "k8s.io/utils/clock/testing"
)

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-t.Context().Done():
			t.Fatalf("waiting for: %s", what)
		case <-tick.C:
		}
	}
}

// content returns the content of a file, which is empty if there is none.
func content(path string) []byte {
	read, _ := os.ReadFile(path)
	return read
}

func TestTheLogOfAContainerdThatKeepsRunningIsLimited(t *testing.T) {
	dir := t.TempDir()
	program, fifo := filepath.Join(dir, "containerd"), filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// It logs what is written to a named pipe.
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nexec cat %s\n", fifo), 0o700); err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakeClock(time.Now())
	config := Config{Dir: dir, Programs: Programs{Containerd: program}, Clock: clock}
	r := &Runtime{settings: settings{Config: config}, LogFile: config.logFile()}
	var err error
	if r.process, err = r.settings.start(); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	ctx, letGo := context.WithCancel(t.Context())
	r.letGo = letGo
	r.kept.Go(func() { r.keep(ctx) })
	defer func() {
		if err := r.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()

	long := append([]byte("first\n"), bytes.Repeat([]byte{'x'}, maxLog)...)
	if _, err := writer.Write(long); err != nil {
		t.Fatal(err)
	}
	await(t, "all of it is in the log", func() bool { return len(content(r.LogFile)) == len(long) })
	await(t, "a check in a minute", clock.HasWaiters)
	clock.Step(logInterval)
	await(t, "the log is empty", func() bool { return len(content(r.LogFile)) == 0 })
	if got := content(r.LogFile + ".1"); !bytes.Equal(got, long[len(long)-maxLog:]) {
		t.Errorf("%d bytes of the end of the log are kept, want %d", len(got), maxLog)
	}

	if _, err := writer.WriteString("later\n"); err != nil {
		t.Fatal(err)
	}
	await(t, "it logs at the start of the file", func() bool { return string(content(r.LogFile)) == "later\n" })
}

func TestTheNextStartKeepsThePreviousLogOrItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := append([]byte("first\n"), bytes.Repeat([]byte{'x'}, maxLog)...)
	for _, test := range []struct{ log, previous []byte }{
		{nil, nil}, {[]byte("short"), []byte("short")}, {long, long[len(long)-maxLog:]}, {[]byte("shorter"), []byte("shorter")},
	} {
		if test.log != nil {
			if err := os.WriteFile(path, test.log, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		log, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		if got := content(path + ".1"); !bytes.Equal(got, test.previous) {
			t.Errorf("after a log of %d bytes, %d of the previous one are kept, want %d", len(test.log), len(got), len(test.previous))
		}
		if n := len(content(path)); n != 0 {
			t.Errorf("the new log begins with %d bytes", n)
		}
	}
}

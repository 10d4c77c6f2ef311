package progress

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestWhileWritesALineEveryIntervalUntilTheOperationReturns(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	reader, writer := io.Pipe()
	lines := make(chan string)
	go func() {
		buffer := make([]byte, 100)
		for {
			n, err := reader.Read(buffer)
			if err != nil {
				return
			}
			lines <- string(buffer[:n])
		}
	}()
	failure := errors.New("failed")
	err := While(writer, clock, "still working", func() error {
		for _, want := range []string{"still working (2s)\n", "still working (4s)\n"} {
			clock.Step(Interval)
			if got := <-lines; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want the operation's error", err)
	}
	writer.Close()
}

func TestWhileWritesNothingAboutAShortOperation(t *testing.T) {
	var out strings.Builder
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	if err := While(&out, clock, "still working", func() error { clock.Step(Interval - 1); return nil }); err != nil || out.String() != "" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

package footprint

import (
	"runtime"
	"testing"
)

func TestOnlyReadOnlySegmentsOfTheFileAreDropped(t *testing.T) {
	offsets := map[uint64]bool{0: true, 0x2dc7000: true, 0x65f5000: false}
	for line, want := range map[string]bool{
		"00400000-031c7000 r-xp 00000000 fe:00 123  /bin/svc":  true,
		"031c7000-069f5000 r--p 02dc7000 fe:00 123  /bin/svc":  true,
		"069f5000-06b39000 rw-p 065f5000 fe:00 123  /bin/svc":  false,
		"00400000-031c7000 r-xs 00000000 fe:00 123  /bin/svc":  false,
		"00400000-031c7000 r-xp 00000000 fe:00 123  /lib/x.so": false,
		"7ffd000-7ffe000 r-xp 00000000 00:00 0      [vdso]":    false,
		"c000000000-c000400000 rw-p 00000000 00:00 0 ":         false,
		"06b39000-06b40000 r--p 06739000 fe:00 123  /bin/svc":  false,
		"": false,
	} {
		if _, got := readOnlySegment(line, "/bin/svc", offsets); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func TestTheProcessGoesOn(t *testing.T) {
	for range 2 {
		if err := Shrink(); err != nil {
			t.Fatal(err)
		}
		// A program with C code starts threads by functions of the C library, whose
		// addresses the dynamic linker has written into a segment that is read-only now.
		// More threads at the same time than there were before: new ones have to start.
		const threads = 50
		started, done := make(chan struct{}), make(chan struct{})
		for range threads {
			go func() {
				runtime.LockOSThread()
				started <- struct{}{}
				<-done // the thread ends with its goroutine
			}()
		}
		for range threads {
			<-started
		}
		close(done)
	}
}

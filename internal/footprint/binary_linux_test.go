package footprint

import "testing"

func TestOnlyReadOnlySegmentsOfTheFileAreDropped(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-031c7000 r-xp 00000000 fe:00 123  /bin/svc":  true,
		"031c7000-069f5000 r--p 02dc7000 fe:00 123  /bin/svc":  true,
		"069f5000-06b39000 rw-p 065f5000 fe:00 123  /bin/svc":  false,
		"00400000-031c7000 r-xs 00000000 fe:00 123  /bin/svc":  false,
		"00400000-031c7000 r-xp 00000000 fe:00 123  /lib/x.so": false,
		"7ffd000-7ffe000 r-xp 00000000 00:00 0      [vdso]":    false,
		"c000000000-c000400000 rw-p 00000000 00:00 0 ":         false,
		"": false,
	} {
		if _, got := readOnlySegment(line, "/bin/svc"); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func TestTheProcessGoesOn(t *testing.T) {
	if err := Shrink(); err != nil {
		t.Fatal(err)
	}
	if err := Shrink(); err != nil {
		t.Fatal(err)
	}
}

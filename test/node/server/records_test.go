package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRecordsAreKeptAndChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	open := func() *records {
		t.Helper()
		r, err := openRecords(path)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	for _, record := range []string{"a", "b"} {
		if err := open().add(record); err != nil {
			t.Fatal(err)
		}
	}
	const whole = "e8b7be43 a\n9e83486d b\n"
	if got := read(); got != whole {
		t.Fatalf("%q, want %q", got, whole)
	}

	write(whole + "1234") // killed while it wrote
	open()
	if got := read(); got != whole {
		t.Errorf("%q, want %q", got, whole)
	}
	for _, damaged := range []string{"9e83486d b\n", "e8b7be43 c\n9e83486d b\n", "\n"} {
		write(damaged)
		if _, err := openRecords(path); err == nil {
			t.Errorf("%q is taken for complete", damaged)
		}
	}
}

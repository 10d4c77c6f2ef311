package executor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAHostsFileOfAnySizeIsReadNoFurtherThanItsContent(t *testing.T) {
	path, content := filepath.Join(t.TempDir(), "etc-hosts"), []byte("127.0.0.1 localhost\n")
	if hasContent(path, content) {
		t.Error("a file that does not exist has the content")
	}
	for _, test := range []struct {
		size int64
		want bool
	}{{int64(len(content)), true}, {int64(len(content)) + 1, false}, {4 << 40, false}} { // the last one is more than memory
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, test.size); err != nil {
			t.Fatal(err)
		}
		if got := hasContent(path, content); got != test.want {
			t.Errorf("of %d bytes: %t", test.size, got)
		}
	}
}

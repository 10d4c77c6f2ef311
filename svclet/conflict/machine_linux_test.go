package conflict

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadFindsTheInterfacesOfThisMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m, err := Read(t.Context(), "", false)
	if err != nil || !slices.Contains(m.Interfaces, "lo") || !slices.ContainsFunc(m.Networks, func(n Network) bool { return n.Interface == "lo" }) {
		t.Error(m, err)
	}
}

func TestUFWIsEnabledByItsConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ufw.conf")
	for content, want := range map[string]bool{"# ENABLED=yes\nENABLED=no\n": false, "LOGLEVEL=low\nENABLED=yes\n": true} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if ufwEnabled(file) != want {
			t.Errorf("%q: enabled is %t", content, !want)
		}
	}
	if ufwEnabled(file + ".none") {
		t.Error("enabled without a configuration")
	}
}

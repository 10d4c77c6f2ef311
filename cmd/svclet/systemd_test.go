package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/svclet/join"
)

// fakeSystemd returns a systemd that runs nothing, and a function that returns its commands since
// the last call.
func fakeSystemd(t *testing.T) (s systemd, commands func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "commands")
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>'%s'\n", log)
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return systemd{runs: true, unitFile: filepath.Join(dir, "svclet.service")}, func() string {
		content, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		_ = os.Remove(log)
		return strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", ", ")
	}
}

// filesIn returns the contents of the files in directories.
func filesIn(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(content)
		}
	}
	return all
}

// The svclet of the first join waits for its certificate: it has no connection file yet.
func TestASecondJoinIsRefusedWhileTheFirstOneWaits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can join")
	}
	for name, made := range map[string]func(files join.Files, s systemd) (string, error){
		"with its command line": func(files join.Files, _ systemd) (string, error) {
			return files.ArgumentsFile(), files.WriteArguments(files.Arguments("/root", nil))
		},
		"as a service whose files are elsewhere": func(_ join.Files, s systemd) (string, error) {
			return s.unitFile, s.start(t.Context(), join.Files{Dir: "/elsewhere"}.Arguments("/root", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, commands := fakeSystemd(t)
			files := join.Files{Dir: t.TempDir()}
			first, err := made(files, machine)
			if err != nil {
				t.Fatal(err)
			}
			if err := files.Write("https://192.0.2.1:6443", "abcdef.0123456789abcdef", []byte("authority")); err != nil {
				t.Fatal(err)
			}
			commands()
			before := filesIn(t, files.Dir, filepath.Dir(machine.unitFile))
			connection := filepath.Join(t.TempDir(), "connection")
			if err := os.WriteFile(connection, []byte(connectionFile), 0o600); err != nil {
				t.Fatal(err)
			}
			second := joinOptions{systemd: machine, dir: files.Dir, rootDir: t.TempDir(), connection: connection, more: []string{"--bogus"}}
			err = second.run(t.Context(), func(string) string { return "" }, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), first+" exists; 'svclet reset'") {
				t.Errorf("the second join returns %v", err)
			}
			if after := filesIn(t, files.Dir, filepath.Dir(machine.unitFile)); !maps.Equal(before, after) {
				t.Errorf("the files were %v, and are %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
			if got := commands(); got != "" {
				t.Errorf("systemctl %s", got)
			}
		})
	}
}

func TestAResetStopsTheServiceOfAJoinWithoutFiles(t *testing.T) {
	machine, commands := fakeSystemd(t)
	files := join.Files{Dir: t.TempDir()}
	if err := machine.start(t.Context(), files.Arguments("/root", nil)); err != nil {
		t.Fatal(err)
	}
	if got := commands(); got != "daemon-reload, enable --now svclet.service" {
		t.Errorf("the join runs systemctl %s", got)
	}
	for _, test := range []struct {
		files   join.Files
		systemd systemd
		joined  bool
	}{
		{files, machine, true},
		{join.Files{Dir: t.TempDir()}, machine, false},
		{files, systemd{unitFile: machine.unitFile}, false},
	} {
		r, err := newResetting(test.files, test.systemd, "", func(string) string { return "" })
		if err != nil || r.joined != test.joined {
			t.Errorf("%+v, %+v: %+v, %v; has it joined? want %t", test.files, test.systemd, r, err, test.joined)
		}
	}
	for _, want := range []string{"disable --now svclet.service, daemon-reload", ""} { // the second reset finds none
		if err := machine.remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := commands(); got != want {
			t.Errorf("the reset runs systemctl %q, want %q", got, want)
		}
	}
}

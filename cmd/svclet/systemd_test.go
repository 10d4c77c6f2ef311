package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/containerd"
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

// otherUnit returns a unit, with the files of a join, that svclet join does not write.
func otherUnit(files join.Files) string {
	return "[Service]\nExecStart=/bin/sh -c 'exec svclet --config=" + files.Configuration() + " --svcconfig=" + files.Connection() + "'\n"
}

// The svclet of the first join waits for its certificate: it has no connection file yet.
func TestASecondJoinIsRefusedWhileTheFirstOneWaits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can join")
	}
	for name, made := range map[string]func(files join.Files, s systemd) (string, error){
		"with its command line": func(files join.Files, _ systemd) (string, error) {
			return files.ArgumentsFile() + " exists; 'svclet reset --config-dir=" + files.Dir + "' undoes", files.WriteArguments(files.Arguments("/root", nil))
		},
		"as a service whose files are elsewhere": func(_ join.Files, s systemd) (string, error) {
			return s.unitFile + " exists; 'svclet reset --config-dir=/else where' undoes", s.start(t.Context(), join.Files{Dir: "/else where"}.Arguments("/root", nil))
		},
		"beside a service of the administrator's": func(files join.Files, s systemd) (string, error) {
			return s.unitFile + " exists, and svclet join has not written it: stop its svclet and remove it by hand", s.start(t.Context(), []string{"--config=" + files.Configuration()})
		},
		"beside a service with another command line": func(files join.Files, s systemd) (string, error) {
			return s.unitFile + " exists, and svclet join has not written it: stop its svclet and remove it by hand", os.WriteFile(s.unitFile, []byte(otherUnit(files)), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, commands := fakeSystemd(t)
			files := join.Files{Dir: t.TempDir()}
			want, err := made(files, machine)
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
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the second join returns %v, want %s", err, want)
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
		{join.Files{Dir: filepath.Dir(files.Dir)}, machine, false},
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

// The root directory is locked, so that a reset changes nothing on the machine that runs the test:
// it fails after it has removed the unit.
func TestAResetByTheUnitAloneUsesAndKeepsItsCommandLine(t *testing.T) {
	machine, commands := fakeSystemd(t)
	files, root := join.Files{Dir: filepath.Join(t.TempDir(), "my files")}, filepath.Join(t.TempDir(), "100% mine")
	if err := machine.start(t.Context(), files.Arguments("/unused", []string{"--root-dir=" + root, "--cgroup-root=/node"})); err != nil {
		t.Fatal(err)
	}
	commands()
	other, err := newResetting(files, machine, t.TempDir(), func(string) string { return "" })
	if err != nil || other.joined || !other.apart {
		t.Errorf("with another root directory: %+v, %v", other, err)
	}
	lock, err := agent.LockRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, want := range []string{"disable --now svclet.service, daemon-reload", ""} { // the second time the unit is gone
		r, err := newResetting(files, machine, "", func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		left, err := r.leavings(t.Context())
		if err != nil || left.Dir != root || left.Cgroup != "/node/kubepods" || left.Endpoint != "" {
			t.Fatalf("it removes %+v, %v", left, err)
		}
		// What only the configuration file said, which is gone, the svclet has recorded.
		recorded := left
		recorded.Endpoint = "unix:///run/c.sock"
		if err := recorded.Record(); err != nil {
			t.Fatal(err)
		}
		if left, err := r.leavings(t.Context()); err != nil || left != recorded {
			t.Errorf("it removes %+v, %v, want %+v", left, err, recorded)
		}
		if err := os.Remove(filepath.Join(root, containerd.LeavingsFile)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.reset(t.Context()); err == nil || !strings.Contains(err.Error(), root+" is in use") {
			t.Errorf("the reset returns %v", err)
		}
		if got := commands(); got != want {
			t.Errorf("the reset runs systemctl %q, want %q", got, want)
		}
	}
}

func TestAResetKeepsAUnitThatIsNotOfTheJoin(t *testing.T) {
	files := join.Files{Dir: t.TempDir()}
	root := t.TempDir()
	lock, err := agent.LockRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for name, test := range map[string]struct{ unit, refused string }{
		"of the administrator":   {unit: join.Unit("/svclet", []string{"--config=" + files.Configuration(), "--root-dir=/mine"})},
		"of another join":        {unit: join.Unit("/svclet", join.Files{Dir: "/elsewhere"}.Arguments("/mine", nil))},
		"with another ExecStart": {unit: otherUnit(files), refused: ": its ExecStart= is not as svclet join writes it: stop svclet and remove the unit by hand, then reset with --root-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			machine, commands := fakeSystemd(t)
			if err := os.WriteFile(machine.unitFile, []byte(test.unit), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{nil, files.Arguments("/root", []string{"--root-dir=" + root})} { // without and with a join
				if args != nil {
					if err := errors.Join(files.WriteArguments(args), os.WriteFile(files.Configuration(), []byte("apiVersion: svclet.config.k8s.io/v1beta1\nkind: SvcletConfiguration\n"), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				_, err := newResetting(files, machine, "", func(string) string { return "" })
				if (test.refused == "") != (err == nil) || err != nil && err.Error() != machine.unitFile+test.refused {
					t.Errorf("without a root directory: %v", err)
				}
				r, err := newResetting(files, machine, root, func(string) string { return "" })
				if err != nil || r.joined != (args != nil) || r.RootDir != root {
					t.Fatalf("%+v, %v", r, err)
				}
				if _, _, err := r.reset(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
					t.Errorf("the reset returns %v", err)
				}
				if kept := r.kept(); !strings.Contains(strings.Join(kept, "\n"), machine.unitFile+" is kept") {
					t.Errorf("the reset says %q", kept)
				}
			}
			if err := errors.Join(os.Remove(files.ArgumentsFile()), os.Remove(files.Configuration())); err != nil {
				t.Error(err)
			}
			if content, err := os.ReadFile(machine.unitFile); err != nil || string(content) != test.unit || commands() != "" {
				t.Errorf("the unit is %q, %v", content, err)
			}
		})
	}
}

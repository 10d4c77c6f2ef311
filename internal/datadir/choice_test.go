package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestACommandIsAboutTheDirectoryThatKubectlUses(t *testing.T) {
	root := t.TempDir()
	env := map[string]string{"XDG_DATA_HOME": filepath.Join(root, "share"), "XDG_RUNTIME_DIR": filepath.Join(root, "run")}
	u, other := person(env), Dir(filepath.Join(root, "other"))
	check := func(rule, flag string, want Choice) {
		t.Helper()
		if got, err := u.Choose(flag); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", rule, got, err, want)
		}
	}
	own := Dir(filepath.Join(root, "share", "svc"))
	check("nothing has run", "", Choice{own, "the default", true})
	lock, err := other.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := os.WriteFile(other.AdminFile(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Publish(other.AdminFile()); err != nil {
		t.Fatal(err)
	}
	check("another one runs", "", Choice{other, "of the svc up that was started last", false})
	check("the flag", "/named", Choice{"/named", "--data-dir", true})
	lock.Close()
	check("another one was killed", "", Choice{other, "of the svc up that ran last", false})
	env["KUBECONFIG"] = other.AdminFile()
	check("KUBECONFIG", "", Choice{other, "of KUBECONFIG", true})
	env["KUBECONFIG"] = "/elsewhere/config"
	check("the flag before KUBECONFIG", "/named", Choice{"/named", "--data-dir", true})
	if _, err := u.Choose(""); err == nil || !strings.Contains(err.Error(), "KUBECONFIG: /elsewhere/config is not the admin.svcconfig of an svc up on this machine") {
		t.Errorf("a KUBECONFIG of another cluster: %v", err)
	}
}

func TestAUserWithoutAnUpIsToldOfRootsWhereThatHasRun(t *testing.T) {
	root, env := t.TempDir(), map[string]string{"HOME": "/home/me"}
	user := User{ID: 1000, Env: func(name string) string { return env[name] }}
	const own = "/home/me/.local/share/svc"
	if got, want := user.SudoHint(own, Dir(root)), "; with sudo the command is about the svc up of root, on "+root; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for rule, got := range map[string]string{
		"root has not run it":                     user.SudoHint(own, Dir(filepath.Join(root, "absent"))),
		"the user has named a directory":          user.SudoHint("/named", Dir(root)),
		"the user is root":                        User{ID: 0, Env: user.Env}.SudoHint(RootDefault, RootDefault),
		"the user has no default, without a HOME": User{ID: 1000, Env: func(string) string { return "" }}.SudoHint("/named", Dir(root)),
	} {
		if got != "" {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

func TestTheHolderIsTheProcessThatHasTheDirectoryOpen(t *testing.T) {
	dir := Dir(t.TempDir())
	if _, held, err := dir.Holder(); held || err != nil {
		t.Errorf("without a holder: %v, %v", held, err)
	}
	lock, err := dir.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	holder, held, err := dir.Holder()
	if err != nil || !held || holder.PID != os.Getpid() || holder.Since.IsZero() {
		t.Errorf("got %+v, %v, %v", holder, held, err)
	}
}

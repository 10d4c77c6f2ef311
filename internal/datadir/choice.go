package datadir

import (
	"fmt"
	"os"
	"path/filepath"
)

// Choice is the data directory that a command is about, and what named it.
type Choice struct {
	Dir Dir
	// By is what named it: a flag, an environment variable, or a rule.
	By string
	// Obvious reports whether the user has named it, or it is the user's default.
	Obvious bool
}

// SudoHint returns what to add to a message that a directory has no svc up: for a user whose own
// default that is, on a machine on which root has run svc up on a directory, its default. It is empty
// for others.
func (u User) SudoHint(dir, root Dir) string {
	own, err := u.DataDir()
	if err != nil || u.ID == 0 || dir != own {
		return ""
	}
	if _, err := os.Stat(string(root)); err != nil {
		return ""
	}
	return fmt.Sprintf("; with sudo the command is about the svc up of root, on %s", root)
}

// String names the directory and the reason.
func (c Choice) String() string { return fmt.Sprintf("%s (%s)", c.Dir, c.By) }

// Choose returns the data directory that a command about an svc up of this machine
// is about, by the rule that svc kubectl follows for its kubeconfig: the one of
// the flag, else the one whose kubeconfig the variable KUBECONFIG names, else the one
// of FindAdminFile. A KUBECONFIG of another cluster is an error, since the command
// would be about another cluster than svc kubectl.
func (u User) Choose(flag string) (Choice, error) {
	if flag != "" {
		absolute, err := filepath.Abs(flag)
		return Choice{Dir(absolute), "--data-dir", true}, err
	}
	if file := u.Env("KUBECONFIG"); file != "" {
		absolute, err := filepath.Abs(file)
		if err != nil {
			return Choice{}, err
		}
		dir := Dir(filepath.Dir(absolute))
		if _, err := os.Stat(dir.lockFile()); err != nil || absolute != dir.AdminFile() {
			return Choice{}, fmt.Errorf("KUBECONFIG: %s is not the admin.svcconfig of an svc up on this machine: name its directory with --data-dir, or unset KUBECONFIG", file)
		}
		return Choice{dir, "of KUBECONFIG", true}, nil
	}
	file, exists := u.FindAdminFile()
	if file == "" {
		_, err := u.DataDir()
		return Choice{}, err
	}
	dir := Dir(filepath.Dir(file))
	if own, err := u.DataDir(); err == nil && dir == own {
		return Choice{dir, "the default", true}, nil
	}
	if exists && dir.InUse() {
		return Choice{dir, "of the svc up that was started last", false}, nil
	}
	return Choice{dir, "of the svc up that ran last", false}, nil
}

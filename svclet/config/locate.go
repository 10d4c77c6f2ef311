package config

import (
	"fmt"
	"regexp"
)

// aboutFlag is the flag that the text of an error is about: at its beginning or in parentheses.
var aboutFlag = regexp.MustCompile(`^--([a-z-]+): |\(--([a-z-]+)[,)]`)

// Locate returns an error about what a setting names or asks for, such as a file that is
// missing, with the place of the setting if a file set it: "/etc/svclet.yaml:3:
// --reserved-cpus: the machine has no CPUs 4". Errors about flags of the command line, and
// those that name no flag, are returned as they are.
func (s *Settings) Locate(err error) error {
	if err == nil {
		return nil
	}
	flag := aboutFlag.FindStringSubmatch(err.Error())
	if flag == nil {
		return err
	}
	of := ofFlag(s.table, flag[1]+flag[2])
	if of == nil || s.given[of.Flag] || !s.set(of.Field) {
		return err
	}
	return fmt.Errorf("%s: %w", s.origins[of.Field], err)
}

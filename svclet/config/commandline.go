package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"svc.dev/svc/internal/suggest"
)

// commandLine is the settings of a command line.
type commandLine struct {
	given    map[string]bool // by the flags' own names
	problems Problems
}

// parse parses args. It reports all problems.
func parse(args []string, all []Setting, flags *Flags, c *Configuration) commandLine {
	line := commandLine{given: map[string]bool{}}
	args = slices.Clone(args)
	for {
		attempt := newFlagSet(all, flags, c)
		clear(line.given)
		var wrong Problems
		err := attempt.ParseAll(args, func(flag *pflag.Flag, text string) error {
			line.given[flag.Name] = true
			of, v := ofFlag(all, flag.Name), flag.Value.(*value)
			if err := v.Set(text); err != nil {
				wrong.add("%s", badValue(of, text, err))
			} else if of.fallback != nil {
				if problem := of.refuse(v.target); problem != "" {
					wrong.add("%s%s", of.title(true), problem)
				}
			}
			return nil
		})
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			// The flag is removed to find further problems.
			line.problems.add("%s", unknownFlag(all, unknown.GetSpecifiedName()))
			args = without(args, unknown.GetSpecifiedName())
			continue
		}
		line.problems = append(line.problems, wrong...)
		if err != nil {
			line.problems.add("%s", strings.ReplaceAll(err.Error(), "flag needs an argument:", "a value is missing after"))
		}
		for _, argument := range attempt.Args() {
			line.problems.add("unexpected argument %q: only flags are taken, as --svcconfig=FILE", argument)
		}
		return line
	}
}

// newFlagSet returns the existing flags, bound to their targets.
func newFlagSet(all []Setting, flags *Flags, c *Configuration) *pflag.FlagSet {
	set := pflag.NewFlagSet("svclet", pflag.ContinueOnError)
	set.SetInterspersed(true)
	set.Usage = func() {}
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(ownName(all, name))
	})
	for i := range all {
		s := &all[i]
		if s.Flag == "" {
			continue
		}
		v := &value{target: s.target(flags, c), separator: s.Separator}
		flag := set.VarPF(v, s.Flag, s.Short, s.Usage)
		if v.Type() == "bool" || s.Flag == "version" {
			flag.NoOptDefVal = "true"
		}
	}
	return set
}

// ownName returns svclet's name of a flag for kubelet's name, and for a name with
// underscores.
func ownName(all []Setting, name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	if s := ofFlag(all, name); s != nil {
		return s.Flag
	}
	return name
}

// target returns the value that a setting sets.
func (s *Setting) target(flags *Flags, c *Configuration) reflect.Value {
	switch {
	case s.Field != "":
		return fieldOf(c, s.Field)
	case s.fallback != nil:
		target := reflect.New(reflect.TypeOf(s.fallback)).Elem()
		target.Set(reflect.ValueOf(s.fallback))
		return target
	}
	v := reflect.ValueOf(flags).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("flag") == s.Flag {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// headersField is the field of --manifest-url-header.
const headersField = "staticPodURLHeader"

// badValue describes an invalid flag value. It does not quote headers, which may
// be secrets.
func badValue(s *Setting, text string, err error) string {
	if s.Field == headersField {
		return fmt.Sprintf("%s %v", s.title(true), err)
	}
	return fmt.Sprintf("%s: %q %v", s.title(true), text, err)
}

// unknownFlag returns the message for a flag that does not exist.
func unknownFlag(all []Setting, name string) string {
	dashed := "--" + name
	if len(name) == 1 {
		dashed = "-" + name
	}
	var known []string
	for i := range all {
		known = append(known, all[i].names()...)
	}
	if similar := suggest.Closest(name, known); similar != "" {
		return fmt.Sprintf("unknown flag %s; did you mean --%s?", dashed, similar)
	}
	return fmt.Sprintf("unknown flag %s; svclet --help lists them", dashed)
}

// without removes the first flag with this name from args, with its value if that
// is a separate argument.
func without(args []string, name string) []string {
	for i, arg := range args {
		short := len(name) == 1 && strings.HasPrefix(arg, "-"+name)
		whole := arg == "--"+name
		if !short && !whole && !strings.HasPrefix(arg, "--"+name+"=") {
			continue
		}
		end := i + 1
		if whole && end < len(args) && !strings.HasPrefix(args[end], "-") {
			end++
		}
		return slices.Delete(args, i, end)
	}
	return nil
}

package main

import (
	"strings"
	"testing"
)

func TestBadFlagsAreNamed(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--rounds=0", "--rounds=0"},
		{"--only=(", "--only"},
		{"start", `"start"`},
		{"--plot=a.svg --only=start", "--only=start"},
	} {
		if _, err := parseFlags(strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error that names %s", test.args, err, test.want)
		}
	}
}

func TestTheDefaultOfAQuickRunIsOneRound(t *testing.T) {
	for args, want := range map[string]int{"": 3, "--quick": 1, "--quick --rounds=3": 3} {
		o, err := parseFlags(strings.Fields(args))
		if err != nil || o.rounds != want {
			t.Errorf("%q: %d rounds, %v, want %d", args, o.rounds, err, want)
		}
	}
}

func TestMeasuresAreSelectedByTheirWholeNames(t *testing.T) {
	for args, want := range map[string]string{"--only=pods": "pods", "--only=list,pods": "pods list", "--only=pod.*e": "podidle", "--only=c.*s": "configmaps cronjobs claims costs crds"} {
		o, err := parseFlags(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		selected, err := selectMeasures(o)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range selected {
			for _, m := range c.measures {
				names = append(names, m.name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s selects %s, want %s", args, got, want)
		}
	}
	if o, err := parseFlags(nil); err != nil || !o.only.MatchString("growth") {
		t.Errorf("without --only: %v, growth is not selected", err)
	}
}

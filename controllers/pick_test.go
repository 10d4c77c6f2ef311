package controllers

import (
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/controllers/controller"
)

func TestPick(t *testing.T) {
	all := []controller.Controller{
		{Name: "namespace", Aliases: []string{"namespace-controller"}, Standalone: true},
		{Name: "podgc", Aliases: []string{"pod-garbage-collector-controller"}},
		{Name: "job"},
		{Name: "tokencleaner", OnDemand: true},
	}
	for flag, want := range map[string]string{
		"*":                       "namespace podgc job",
		"":                        "",
		"*,tokencleaner":          "namespace podgc job tokencleaner",
		"*,-podgc":                "namespace job",
		"-podgc,*":                "namespace job",
		"-podgc":                  "",
		"job,namespace":           "namespace job",
		"namespace-controller":    "namespace",
		"*,-namespace-controller": "podgc job",
		"job,job":                 "job",
		"job,-job":                `--controllers: "job" is both enabled and disabled: name it once`,
		"podgc,-pod-garbage-collector-controller": `--controllers: "podgc" is both enabled and disabled: name it once`,
		"namspace":            `--controllers: there is no controller "namspace": did you mean "namespace"?`,
		"-Namespace":          `--controllers: there is no controller "Namespace": did you mean "namespace"?`,
		"namespace-controler": `--controllers: there is no controller "namespace-controler": did you mean "namespace-controller"?`,
		"jab":                 `--controllers: there is no controller "jab": did you mean "job"?`,
		"foo":                 `--controllers: there is no controller "foo": choose from *, job, namespace, podgc, tokencleaner`,
		"*,-service":          `--controllers: "service" is a controller of kube-controller-manager that svc does not have: leave it out`,
		"--job":               `--controllers: there is no controller "-job": did you mean "job"?`,
	} {
		picked, err := Pick(all, strings.Split(flag, ","), false, Included)
		var got []string
		for _, c := range picked {
			got = append(got, c.Name)
		}
		result := strings.Join(got, " ")
		if err != nil {
			result = err.Error()
		}
		if result != want {
			t.Errorf("%q: %s, want %s", flag, result, want)
		}
	}
}

func TestStandaloneControllersOfAFleetRunOnlyIfTheyAreNamed(t *testing.T) {
	all := []controller.Controller{{Name: "namespace", Standalone: true}, {Name: "job"}, {Name: "tokencleaner", OnDemand: true, Standalone: true}}
	for flag, want := range map[string][]string{
		"*":              {"job"},
		"*,namespace":    {"job", "namespace"},
		"tokencleaner":   {"tokencleaner"},
		"*,-job":         nil,
		"":               nil,
		"*,tokencleaner": {"job", "tokencleaner"},
	} {
		picked, err := Pick(all, strings.Split(flag, ","), true, Included)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(picked); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", flag, got, want)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	owner := map[string]string{}
	for _, c := range All() {
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			if other, ok := owner[name]; ok {
				t.Errorf("%s is a name of %s and of %s", name, other, c.Name)
			}
			owner[name] = c.Name
		}
	}
}

package expand

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	value := Lookup(map[string]string{"A": "1", "B_2": "two", "EMPTY": "", "REF": "$(A)"}, map[string]string{"A": "hidden", "S": "service"})
	for text, want := range map[string]string{
		"":                   "",
		"plain":              "plain",
		"$(A)":               "1",
		"x$(A)y$(B_2)z":      "x1ytwoz",
		"$(S)":               "service",
		"$(EMPTY)":           "",
		"$(REF)":             "$(A)", // values are not expanded again
		"$(NONE)":            "$(NONE)",
		"$$(A)":              "$(A)",
		"$$$(A)":             "$1",
		"$$$$(A)":            "$$(A)",
		"$A":                 "$A",
		"$":                  "$",
		"cost: 5$":           "cost: 5$",
		"$(A":                "$(A",
		"$((A)":              "$((A)",
		"$(A)$(":             "1$(",
		"$()":                "$()",
		"$( A)":              "$( A)",
		"é$(A)é":             "é1é",
		"$é$(A)":             "$é1",
		"$(A) $$ $(B_2) $$x": "1 $ two $x",
	} {
		if got, err := Text(text, value, MaxLength); got != want || err != nil {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, text := range []string{"$(A)", "$$(A)", "$(", "a$b$(c)d", "$$$$", "$(A$(B))", "\xff$(A)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		// Without variables only escapes change.
		unchanged, _ := Text(text, Lookup(), MaxLength)
		if !strings.Contains(text, "$$") && unchanged != text {
			t.Errorf("%q becomes %q", text, unchanged)
		}
		// Escaping every dollar sign results in the text itself.
		if got, _ := Text(strings.ReplaceAll(text, "$", "$$"), Lookup(map[string]string{"A": "1"}), MaxLength); got != text {
			t.Errorf("%q, escaped, becomes %q", text, got)
		}
		// A name ends at the first closing parenthesis.
		_, _ = Text(text, func(name string) string {
			if strings.Contains(name, ")") {
				t.Errorf("the name %q in %q", name, text)
			}
			return ""
		}, MaxLength)
	})
}

func TestPathsNeedAllTheirVariables(t *testing.T) {
	environment := map[string]string{"A": "x", "EMPTY": ""}
	if got, err := Strictly("logs/$(A)", environment); err != nil || got != "logs/x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Strictly("$(NONE)/$(EMPTY)/$(A)/$(NONE)", environment); err == nil || err.Error() != "missing value for EMPTY, NONE" {
		t.Errorf("error %v", err)
	}
}

func TestReferencesHaveAnEnd(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	value := Lookup(map[string]string{"A": long})
	for text, refused := range map[string]bool{
		strings.Repeat("$(A)", MaxLength>>20): false, strings.Repeat("$(A)", MaxLength>>20+1): true,
		strings.Repeat("x", MaxLength+1): false, // which is as long as its object
	} {
		if _, err := Text(text, value, MaxLength); (err != nil) != refused {
			t.Errorf("of %d bytes: %v", len(text), err)
		}
	}
	half := strings.Repeat("$(A)", MaxLength>>21)
	if _, err := Words([]string{half, half}, value); err != nil {
		t.Error(err)
	}
	if _, err := Words([]string{half, half, "$(A)"}, value); err == nil {
		t.Error("the words together have no end")
	}
}

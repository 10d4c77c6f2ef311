package release

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     Release
		err      string
	}{
		{name: "a release", in: "1.28", want: Release{1, 28}},
		{name: "a leading v is allowed", in: "v1.21", want: Release{1, 21}},
		{name: "the newest is the libraries'", in: Newest.String(), want: Newest},
		{name: "a later one is unknown", in: "1.99", err: `release "1.99" is not known to this build: choose one from 1.0 to ` + Newest.String()},
		{name: "another major is unknown", in: "2.0", err: "not known to this build"},
		{name: "a patch is not part of a release", in: "1.28.3", err: `"1.28.3" is not a release: write MAJOR.MINOR, such as 1.28`},
		{name: "a bare major is not a release", in: "1", err: "is not a release"},
		{name: "nothing is not a release", in: "", err: "is not a release"},
		{name: "a negative is not a release", in: "1.-3", err: "is not a release"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse(tc.in)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error = %v, want one that contains %q", err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("Parse(%q) = %v, %v; want %v", tc.in, got, err, tc.want)
			}
		})
	}
}

func TestEffectiveVersions(t *testing.T) {
	public, internal := Public(Default, "0.1.0"), Internal()
	for _, v := range []interface{ Validate() []error }{public, internal, Public(Release{1, 16}, "0.1.0")} {
		if errs := v.Validate(); len(errs) != 0 {
			t.Errorf("%v does not validate: %v", v, errs)
		}
	}
	if got := public.EmulationVersion().String(); got != "1.28" {
		t.Errorf("the public view emulates %s, want 1.28", got)
	}
	if got := internal.EmulationVersion().String(); got != Newest.String() {
		t.Errorf("the internal view emulates %s, want %s", got, Newest)
	}
}

func TestInfoIsTheReleasesAndNotTheLibraries(t *testing.T) {
	info := Public(Default, "0.1.0").Info()
	if info.GitVersion != "v1.28.0+svc-0.1.0" {
		t.Errorf("gitVersion = %q", info.GitVersion)
	}
	if info.Major != "1" || info.Minor != "28" || info.EmulationMinor != "28" {
		t.Errorf("major, minor, emulationMinor = %q, %q, %q", info.Major, info.Minor, info.EmulationMinor)
	}
	if info.GoVersion == "" || info.Compiler == "" || !strings.Contains(info.Platform, "/") {
		t.Errorf("goVersion, compiler, platform = %q, %q, %q", info.GoVersion, info.Compiler, info.Platform)
	}
}

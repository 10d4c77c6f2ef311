package release

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	baseversion "k8s.io/component-base/version"
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
		{name: "the latest", in: "latest", want: Newest},
		{name: "a patch is of its release", in: "1.28.3", want: Release{1, 28}},
		{name: "a later one", in: "1.99", err: `invalid release "1.99": must be 1.16 to 1.37, or latest`},
		{name: "an older one", in: "1.15", err: `invalid release "1.15"`},
		{name: "another major", in: "2.0", err: `invalid release "2.0"`},
		{name: "a bare major", in: "1", err: `invalid release "1"`},
		{name: "nothing", in: "", err: `invalid release ""`},
		{name: "a negative", in: "1.-3", err: `invalid release "1.-3"`},
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

func TestTheFlagHasTwoNames(t *testing.T) {
	for want, args := range map[string][]string{
		"1.28": nil, "1.25": {"--release=1.25"}, "1.31": {"--emulated-version=kube=1.31"}, "1.30": {"--emulated-version=1.30"}, "1.37": {"--release=latest"},
		"1.26": {"--release=1.25", "--release=1.26"}, "1.24": {"--release=1.24", "--emulated-version=kube=1.24"},
	} {
		r, fs := Default, pflag.NewFlagSet("", pflag.ContinueOnError)
		told := Default
		AddFlags(fs, &r, func(r Release) { told = r })
		if err := fs.Parse(args); err != nil || r.String() != want || told != r {
			t.Errorf("%v: got %v, told %v, %v", args, r, told, err)
		}
	}
	for want, args := range map[string][]string{
		`invalid argument "1.99" for "--release" flag: must be 1.16 to 1.37, or latest`:                                          {"--release=1.99"},
		`invalid argument "1.27" for "--emulated-version" flag: must be that of --release, 1.28; leave one of the two flags out`: {"--release=1.28", "--emulated-version=1.27"},
		`invalid argument "1.28" for "--release" flag: must be that of --emulated-version, 1.27; leave one of the two flags out`: {"--emulated-version=1.27", "--release=1.28"},
	} {
		r, fs := Default, pflag.NewFlagSet("", pflag.ContinueOnError)
		AddFlags(fs, &r, func(Release) {})
		if err := fs.Parse(args); err == nil || err.Error() != want {
			t.Errorf("%v: got %v, want %s", args, err, want)
		}
	}
}

func TestTheNewestReleaseIsThatOfTheLibraries(t *testing.T) {
	if Newest.String() != baseversion.DefaultKubeBinaryVersion {
		t.Errorf("the table of releases ends with %v, the libraries are of %s", Newest, baseversion.DefaultKubeBinaryVersion)
	}
}

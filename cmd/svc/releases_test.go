package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestReleases(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want []string // parts of the output, whitespace collapsed
		err  string
	}{
		{name: "all", args: nil, want: []string{"RELEASE SERVES ADDS DEPRECATES REMOVES VERSIONS REMOVED, OR KINDS OF THEM", "1.22 76 1 4 24 v1 (EphemeralContainers) admissionregistration.k8s.io/v1beta1", "1.29 77 4 5 3 flowcontrol.apiserver.k8s.io/v1beta2 networking.k8s.io/v1alpha1 (ClusterCIDR)", "1.25 65 1 0 8 autoscaling/v2beta1 batch/v1beta1"}},
		{name: "one", args: []string{"1.24"}, want: []string{"policy/v1beta1 PodSecurityPolicy beta on 1.10 1.21 1.25 -", "batch/v1beta1 CronJob beta on 1.8 1.21 1.25 batch/v1 CronJob", "v1 Endpoints GA on 1.16 - - -"}},
		{name: "off by default", args: []string{"v1.28"}, want: []string{"admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy beta off 1.28 - 1.34 -", "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema beta on 1.26 - 1.32 -"}},
		{name: "two", args: []string{"--diff", "1.24..1.29"}, want: []string{"removed events.k8s.io/v1beta1 Event 1.25 events.k8s.io/v1 Event", "added (off) networking.k8s.io/v1alpha1 ServiceCIDR 1.29 -", "FIELDS REMOVED", "meta/v1.ObjectMeta.clusterName", "core/v1.PodSpec.hostUsers"}},
		{name: "unknown release", args: []string{"1.12"}, err: `svc releases: invalid release "1.12": must be 1.16 to 1.37, or latest; see 'svc releases --help'`},
		{name: "half a range", args: []string{"--diff=1.24"}, err: `svc releases: --diff: invalid range "1.24": must be two releases, such as 1.24..1.29; see 'svc releases --help'`},
		{name: "both", args: []string{"1.24", "--diff=1.24..1.25"}, err: `svc releases: unexpected argument "1.24": --diff names the releases; see 'svc releases --help'`},
		{name: "output", args: []string{"-o", "xml"}, err: `svc releases: --output: "xml" is not json; leave the flag out for text; see 'svc releases --help'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut strings.Builder
			code := run(append([]string{"releases"}, tc.args...), &out, &errOut)
			if got := strings.TrimSpace(errOut.String()); got != tc.err || (code == 0) != (tc.err == "") {
				t.Fatalf("exit code %d, %q, want %q", code, got, tc.err)
			}
			got := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}

func TestReleasesAsJSON(t *testing.T) {
	var out, errOut strings.Builder
	if code := run([]string{"releases", "--diff=1.21..1.22", "-o", "json"}, &out, &errOut); code != 0 {
		t.Fatal(errOut.String())
	}
	var c struct {
		Release, From string
		Removed       []servedKindText
	}
	if err := json.Unmarshal([]byte(out.String()), &c); err != nil {
		t.Fatal(err)
	}
	want := servedKindText{APIVersion: "extensions/v1beta1", Kind: "Ingress", Removed: "1.22", Until: "1.21", Replacement: "networking.k8s.io/v1 Ingress"}
	for _, k := range c.Removed {
		if k == want {
			return
		}
	}
	t.Errorf("no %+v in %s", want, out.String())
}

// servedKindText is a part of servedKind as a client reads it.
type servedKindText struct{ APIVersion, Kind, Removed, Until, Replacement string }

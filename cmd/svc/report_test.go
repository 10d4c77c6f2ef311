package main

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/component"
)

func TestTheReportFitsOneScreenAndSaysWhatToTypeNext(t *testing.T) {
	r := report{
		Report: cluster.Report{
			Components: []component.Started{
				{Name: "keys and certificates", Description: "/var/lib/svc/pki", Took: 12 * time.Millisecond},
				{Name: "etcd", Description: "unix:///var/lib/svc/etcd/etcd.sock", Took: 9 * time.Millisecond},
				{Name: "API server", Description: "https://127.0.0.1:6443", Took: 312 * time.Millisecond},
			},
			Took: 333 * time.Millisecond,
		},
		dir: "/var/lib/svc", release: release.Default, program: "svc",
	}
	var out strings.Builder
	r.print(&out)
	want := `svc ` + release.SVCVersion() + ` serves the API of Kubernetes 1.28

  keys and certificates     12 ms  /var/lib/svc/pki
  etcd                       9 ms  unix:///var/lib/svc/etcd/etcd.sock
  API server               312 ms  https://127.0.0.1:6443
  ready                    333 ms

Type next, in another terminal:

  export KUBECONFIG=/var/lib/svc/admin.svcconfig
  svc kubectl get namespaces
  svc kubectl create configmap greeting --from-literal=hello=world
  svc kubectl get configmap greeting -o yaml

Stored, but nothing acts on it: Ingress and IngressClass, until you install a controller for it.
Ctrl-C stops it. What was written is kept in /var/lib/svc.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTheColumnsOfTheReportAreAsWideAsTheLongestName(t *testing.T) {
	var out strings.Builder
	report{Report: cluster.Report{Components: []component.Started{
		{Name: "etcd", Description: "unix:///socket"},
		{Name: "etcd of --etcd-servers-overrides", Description: "http://127.0.0.1:2479"},
	}}, dir: "/var/lib/svc", release: release.Default, program: "svc"}.print(&out)
	want := "\n  etcd                                  0 ms  unix:///socket\n  etcd of --etcd-servers-overrides      0 ms  http://127.0.0.1:2479\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTheReportOfANodeSaysHowToReachAService(t *testing.T) {
	var out strings.Builder
	report{Report: cluster.Report{Node: true, ServiceProxy: true, Components: make([]component.Started, 6)}, dir: "/var/lib/svc", release: release.Default, program: "svc"}.print(&out)
	for _, want := range []string{"  svc kubectl port-forward service/NAME 8080:PORT ", "\n  curl http://CLUSTER-IP:PORT ", "\nPods go on without it; 'svc node reset' ends them.\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines > 24 {
		t.Errorf("it has %d lines", lines)
	}
}

func TestTheReportOfANodeSaysHowClusterIPsAreReached(t *testing.T) {
	var out strings.Builder
	r := report{Report: cluster.Report{Node: true}, dir: "/var/lib/svc", release: release.Default, program: "svc"}
	r.print(&out)
	if strings.Contains(out.String(), "CLUSTER-IP") {
		t.Errorf("without the service proxy:\n%s", out.String())
	}
	out.Reset()
	r.ServiceProxy, r.MissingRoutes = true, []string{"10.0.0.0/24 dev svc0"}
	r.print(&out)
	if want := "  ip route add 10.0.0.0/24 dev svc0                  # first: this machine has no default route\n  curl http://CLUSTER-IP:PORT                        # on this machine; 'get services' prints it\n\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out.String())
	}
}

func TestTheReportOfEachReleaseIsPrinted(t *testing.T) {
	for r := release.Oldest; !release.Newest.Before(r); r.Minor++ {
		var out strings.Builder
		report{Report: cluster.Report{Components: make([]component.Started, 3)}, dir: "/var/lib/svc", release: r, program: "svc"}.print(&out)
		if !strings.HasSuffix(out.String(), "\nCtrl-C stops it. What was written is kept in /var/lib/svc.\n") || strings.Contains(out.String(), "on it: ,") {
			t.Errorf("%v:\n%s", r, out.String())
		}
	}
}

func TestTheDocumentedKindsThatNothingActsOnAreReported(t *testing.T) {
	page, err := os.ReadFile("../../docs/not-yet.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, u := range unattended() {
		row := strings.Join(u.kinds, ", ")
		if release.Default.Before(u.since) {
			row += ", with `--release=" + u.since.String() + "` or later"
		}
		if strings.Count(string(page), "\n| "+row+" |") != 1 {
			t.Errorf("docs/not-yet.md has not exactly one row %q:\n%s", row, page)
		}
		rows++
	}
	if found := strings.Count(string(page), "\n| "); found != rows+1 {
		t.Errorf("docs/not-yet.md has %d rows, want its head and %d", found, rows)
	}
	if got := enumerate([]string{"A", "B", "C"}); got != "A, B and C" {
		t.Errorf("three words are enumerated as %q", got)
	}
}

func TestKindsThatNothingActsOnAreServedSinceTheirRelease(t *testing.T) {
	kinds := apis.Kinds()
	for _, u := range unattended() {
		if !release.Default.Before(u.since) {
			continue
		}
		for _, r := range []release.Release{u.since, {Major: 1, Minor: u.since.Minor - 1}} {
			served, err := release.NewServed(r, nil, kinds)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range kinds {
				if name := k.GVKs()[0].Kind; slices.Contains(u.kinds, name) && len(served.Versions(k)) > 0 != (r == u.since) {
					t.Errorf("%s: the release %s serves the versions %v by default", name, r, served.Versions(k))
				}
			}
		}
	}
}

func TestOnlyTroubleIsLoggedUnlessAskedFor(t *testing.T) {
	var out strings.Builder
	w := warnings{out: &out, muted: new(atomic.Bool)}
	for _, line := range []string{
		"I1120 14:35:52.597871   19792 a.go:1] \"Started\"\n",
		"W1120 14:35:52.626867   19792 b.go:2] Skipping API x/v1beta1 because it has no resources.\n",
		"W1120 14:35:52.626867   19792 b.go:2] slow\n",
		"E1120 14:35:52.597871   19792 c.go:3] \"Failed\"\n",
	} {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: wrote %d, %v", line, n, err)
		}
	}
	w.muted.Store(true)
	if n, err := w.Write([]byte("E1120 14:35:52.7   19792 d.go:4] \"Cut off\"\n")); n == 0 || err != nil {
		t.Errorf("given up: wrote %d, %v", n, err)
	}
	want := "W1120 14:35:52.626867   19792 b.go:2] slow\nE1120 14:35:52.597871   19792 c.go:3] \"Failed\"\n"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestCustomResourcesThatDoNotFitTheirSchemaAreNotLoggedAsErrors(t *testing.T) {
	const prefix = `E1123 23:15:35.775507    8850 fieldmanager.go:159] "[SHOULD NOT HAPPEN] failed to update managedFields (restored)" err="failed to convert new object (n/b; e.com/v1, Kind=W) to `
	var out strings.Builder
	w := withoutMisfits{&out}
	const webhook = prefix + "proper version: conversion webhook failed\"\n"
	for _, line := range []string{prefix + "smd typed: .spec: expected map\"\n", webhook, "E1123 other to smd typed: x\n"} {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: wrote %d, %v", line, n, err)
		}
	}
	if want := webhook + "E1123 other to smd typed: x\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestWhatIsToBeTypedIsQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"/var/lib/svc":   "/var/lib/svc",
		"/home/me/my ks": "'/home/me/my ks'",
		"it's":           `'it'\''s'`,
		"/a/$HOME":       "'/a/$HOME'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%s: got %s, want %s", word, got, want)
		}
	}
}

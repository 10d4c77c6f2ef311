package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/svclet/node"
)

func TestWithoutAnUpDownIsDoneAndStatusFails(t *testing.T) {
	dir := t.TempDir()
	var out, errOut strings.Builder
	if code := run([]string{"down", "--data-dir=" + dir}, &out, &errOut); code != 0 || out.String() != "no svc up runs on "+dir+" (--data-dir)\n" {
		t.Errorf("down: exit code %d, %q, %q", code, out.String(), errOut.String())
	}
	out.Reset()
	want := "svc status: no svc up runs on " + dir + " (--data-dir): start \"svc up\", or name another with --data-dir\n"
	if code := run([]string{"status", "--data-dir=" + dir}, &out, &errOut); code != 1 || out.String() != "" || errOut.String() != want {
		t.Errorf("status: exit code %d, %q, %q", code, out.String(), errOut.String())
	}
	if code := run([]string{"status", "-o", "json", "--data-dir=" + dir}, &out, &errOut); code != 1 || !strings.Contains(out.String(), `"running": false`) {
		t.Errorf("status -o json: exit code %d, %q", code, out.String())
	}
}

func TestWhatEndsOrRemovesRefusesADirectoryThatTheUserHasNotNamed(t *testing.T) {
	const want = "several directories could be meant: name the one of the svc up that was started last with --data-dir=/other"
	if err := named(datadir.Choice{Dir: "/other", By: "of the svc up that was started last"}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := named(datadir.Choice{Dir: "/other", By: "--data-dir", Obvious: true}); err != nil {
		t.Error(err)
	}
}

func TestOnlyRootsUpHasImages(t *testing.T) {
	choice := datadir.Choice{Dir: datadir.Dir(t.TempDir()), By: "the default"}
	const want = "only the svc up of root runs some: use sudo, or name the socket of another containerd with --container-runtime-endpoint"
	if _, err := imagesOf(datadir.User{ID: 1000}, choice); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another user, without containers: %v", err)
	}
	root, err := imagesOf(datadir.User{ID: 0}, choice)
	if err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(choice.Dir.Containerd(), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := imagesOf(datadir.User{ID: 1000}, choice); err != nil || got != root {
		t.Errorf("another user, with containers: %q, %v, want %q", got, err, root)
	}
}

func TestDownDoesNotEndAProcessThatIsNotAnUp(t *testing.T) {
	dir := t.TempDir()
	lock, err := datadir.Dir(dir).Open() // by this test
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	var out, errOut strings.Builder
	if code := run([]string{"down", "--data-dir=" + dir}, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), "which is not svc up") {
		t.Errorf("exit code %d, %q, %q", code, out.String(), errOut.String())
	}
}

func TestProblemsSayWhatAndWhy(t *testing.T) {
	nodes := []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "good"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "away"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped\nposting node status."},
		}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	}
	lacking := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lacking"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: node.ServiceProxyUnavailable, Status: corev1.ConditionTrue, Reason: "ServiceProxyFailed", Message: "nft is\nmissing"},
		{Type: node.ServiceDNSUnavailable, Status: corev1.ConditionFalse},
	}}}
	pod := func(name string, status corev1.PodStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: status}
	}
	ready := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status, Reason: "ContainersNotReady"}}
	}
	waiting := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	deleted := pod("deleted", corev1.PodStatus{Phase: corev1.PodPending})
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	pods := []corev1.Pod{
		pod("runs", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready(corev1.ConditionTrue)}),
		pod("done", corev1.PodStatus{Phase: corev1.PodSucceeded}),
		deleted,
		pod("pending", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no nodes available"},
		}}),
		pod("starts", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waiting("ContainerCreating")}),
		pod("crashes", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: waiting("CrashLoopBackOff"), Conditions: ready(corev1.ConditionFalse)}),
		pod("slow", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready(corev1.ConditionFalse)}),
		pod("evicted", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}),
	}
	inPods, err := podProblems(pods, func() (map[types.UID]corev1.Event, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	service := func(name string, status apiregistrationv1.ConditionStatus, reason string) apiregistrationv1.APIService {
		return apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: apiregistrationv1.APIServiceStatus{
			Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status, Reason: reason}},
		}}
	}
	services := []apiregistrationv1.APIService{service("v1.apps", apiregistrationv1.ConditionTrue, "Local"), service("v1.example.com", apiregistrationv1.ConditionFalse, "ServiceNotFound")}
	for name, tc := range map[string]struct{ got, want []string }{
		"nodes": {nodeProblems(nodes), []string{
			"node away is not ready: NodeStatusUnknown: Kubelet stopped posting node status.",
			"node new is not ready: its agent has not reported yet",
		}},
		"what nodes lack": {lackProblems(append(nodes, lacking)), []string{"node lacking has no service proxy: nft is missing"}},
		"pods": {inPods, []string{
			"pod ns/pending is Pending: Unschedulable: no nodes available",
			"pod ns/starts is Pending",
			"pod ns/crashes is not ready: CrashLoopBackOff",
			"pod ns/slow is not ready: ContainersNotReady",
			"pod ns/evicted is Failed: Evicted",
		}},
		"services": {serviceProblems(services), []string{"apiservice v1.example.com is not available: ServiceNotFound"}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(tc.got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

func TestTheNewestWarningOfAPodIsTheCauseThatItsStatusDoesNotGive(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.Unix(second, 0) }
	warning := func(reason string, seen int64) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: "1"}, Reason: reason, LastTimestamp: at(seen)}
	}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(2)}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(4)}}
	crashes := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for _, test := range []struct {
		name   string
		state  corev1.ContainerState
		events []corev1.Event
		want   string
	}{
		{"of several", corev1.ContainerState{}, []corev1.Event{warning("FailedMount", 4), warning("FailedAttachVolume", 3)}, "FailedMount"},
		{"of a series", corev1.ContainerState{}, []corev1.Event{warning("FailedMount", 4), {
			InvolvedObject: corev1.ObjectReference{UID: "1"}, Reason: "FailedAttachVolume", Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(5).Time)},
		}}, "FailedAttachVolume"},
		{"of another pod", corev1.ContainerState{}, []corev1.Event{{InvolvedObject: corev1.ObjectReference{UID: "2"}, Reason: "FailedMount", LastTimestamp: at(4)}}, "ContainersNotReady"},
		{"of the time before it was scheduled", corev1.ContainerState{}, []corev1.Event{warning("FailedScheduling", 1)}, "ContainersNotReady"},
		{"of a probe", runs, []corev1.Event{warning("Unhealthy", 4)}, "Unhealthy"},
		{"of the time before its container was started", runs, []corev1.Event{warning("FailedMount", 3)}, "ContainersNotReady"},
		{"that says no more than the status", crashes, []corev1.Event{warning("BackOff", 4)}, "CrashLoopBackOff"},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}, Status: corev1.PodStatus{
			Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: test.state}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}, scheduled},
		}}
		got, err := podProblems([]corev1.Pod{pod}, func() (map[types.UID]corev1.Event, error) { return newest(test.events), nil })
		if want := []string{"pod ns/p is Pending: " + test.want}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, want)
		}
	}
}

func TestStatusListsTheWarningsOfPodsOnlyIfAStatusGivesNoCause(t *testing.T) {
	listed := 0
	var pods string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"items":[]}`
		switch r.URL.Path {
		case "/api/v1/pods":
			answer = pods
		case "/api/v1/events":
			listed++
			if got := r.URL.Query().Get("fieldSelector"); got != "involvedObject.kind=Pod,type=Warning" {
				t.Errorf("the selector is %q", got)
			}
			answer = `{"items":[{"involvedObject":{"uid":"1"},"reason":"FailedMount","message":"no such directory"}]}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	file := connectionFile(t, server.URL)
	for _, test := range []struct {
		reason, want string
		lists        int
	}{
		{"Unschedulable", "pod a/b is Pending: Unschedulable", 0},
		{"ContainersNotReady", "pod a/b is Pending: FailedMount: no such directory", 1},
	} {
		pods = `{"items":[{"metadata":{"namespace":"a","name":"b","uid":"1"},"status":{"phase":"Pending","conditions":[{"type":"Ready","status":"False","reason":"` + test.reason + `"}]}}]}`
		listed = 0
		var s clusterStatus
		if err := s.ask(t.Context(), file); err != nil || listed != test.lists || !slices.Equal(s.Problems, []string{test.want}) {
			t.Errorf("%s: %d lists of events, %v, %q", test.reason, listed, err, s.Problems)
		}
	}
}

// connectionFile returns the name of a kubeconfig of a server.
func connectionFile(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	content := `{"clusters":[{"name":"h","cluster":{"server":"` + server + `"}}],"contexts":[{"name":"h","context":{"cluster":"h"}}],"current-context":"h"}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStatusIsOneScreen(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := clusterStatus{
		DataDir: "/var/lib/svc", ChosenBy: "the default", Running: true, PID: 7, Since: &since,
		Server: "https://127.0.0.1:6443", Version: "v1.28.0", Nodes: counted{1, 1}, Pods: counted{3, 16},
	}
	s.Memory.Up = 200 << 20
	for range 13 {
		s.Problems = append(s.Problems, "pod ns/p is Pending")
	}
	var out strings.Builder
	s.print(&out, since.Add(time.Hour))
	want := `svc up  process 7, since 2026-01-02 03:04:05 (60m)
data    /var/lib/svc (the default)
server  https://127.0.0.1:6443, Kubernetes v1.28.0
memory  svc up 200 MiB
nodes   1 of 1 ready
pods    3 of 16 running or completed

Wrong:
` + strings.Repeat("  pod ns/p is Pending\n", shownProblems) + "  and 1 more; -o json prints all\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestTheMemoryOfPodsIsThatOfTheirCgroup(t *testing.T) {
	for version, file := range map[string]string{"2": "svc/memory.current", "1": "memory/svc/memory.usage_in_bytes", "none": "svc/other"} {
		mounted := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(mounted, file)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mounted, file), []byte("4096\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		want := int64(4096)
		if version == "none" {
			want = 0
		}
		if got := cgroupMemory(mounted, "/svc"); got != want {
			t.Errorf("version %s: %d", version, got)
		}
	}
}

package runtime_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// kind is a kind of runtime and event source.
type kind struct {
	name    string
	served  runtimetest.Options
	options runtime.Options
}

// kinds are all of them. With events the relist period is longer than the test, so
// that every report is due to an event.
var kinds = []kind{
	{"container events", runtimetest.Options{Events: true}, runtime.Options{PollPeriod: never, CheckPeriod: never}},
	{"containerd events", runtimetest.Options{Name: "containerd"}, runtime.Options{PollPeriod: never, CheckPeriod: never}},
	{"relist", runtimetest.Options{}, runtime.Options{PollPeriod: 5 * time.Millisecond}},
}

// withEvents are the kinds with events.
var withEvents = kinds[:2]

// each runs a test with each kind, once its watch receives events.
func each(t *testing.T, kinds []kind, test func(t *testing.T, w *fixture, reported *reports)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			w := start(t, kind.served, kind.options)
			reported := w.watch()
			if kind.name != "relist" {
				eventually(t, "the watch listens", func() bool { return w.Listeners() == 1 })
			}
			test(t, w, reported)
		})
	}
}

func TestAWatchFirstReportsExistingPods(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			w := start(t, kind.served, kind.options)
			w.sandbox("a", 0)
			w.End(w.run("a", "app", 0), runtimetest.End{Code: 2})
			w.sandbox("b", 0)
			w.run("b", "app", 0)
			reported := w.watch()
			got := reported.until("a", in("app", pod.Exited))
			if got.Name != "pod-a" || got.Namespace != "default" || got.Observed.Containers[0].ExitCode != 2 {
				t.Errorf("reported %+v", got)
			}
			reported.until("b", in("app", pod.Running))
		})
	}
}

func TestAWatchReportsChangesOfAPod(t *testing.T) {
	each(t, kinds, func(t *testing.T, w *fixture, reported *reports) {
		box := w.sandbox("a", 0)
		id := w.run("a", "app", 0)
		reported.until("a", in("app", pod.Running))
		w.End(id, runtimetest.End{Code: 9, Message: "enough"})
		ended := reported.until("a", in("app", pod.Exited)).Observed.Containers[0]
		if ended.ExitCode != 9 || ended.Reason != "Error" || ended.Message != "enough" {
			t.Errorf("reported %+v", ended)
		}
		again := w.run("a", "app", 1)
		reported.until("a", in("app", pod.Running))
		w.OOM(again)
		killed := reported.until("a", in("app", pod.Exited)).Observed.Containers[0]
		if killed.ID != again || killed.Reason != "OOMKilled" || killed.ExitCode != 137 {
			t.Errorf("reported %+v", killed)
		}
		w.BreakSandbox(box)
		reported.until("a", func(observed pod.Observed) bool { return !observed.Sandboxes[0].Ready })
		if err := w.client.RemoveSandbox(t.Context(), box); err != nil {
			t.Fatal(err)
		}
		if got := reported.until("a", nothing); got.Name != "pod-a" {
			t.Errorf("a pod that is gone is reported as %+v", got)
		}
	})
}

func TestAWatchReportsPodsCreatedByAnotherClient(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			// The relist that resolves containers without a known pod.
			kind.options.PollPeriod = 5 * time.Millisecond
			w := start(t, kind.served, kind.options)
			reported := w.watch()
			w.sandbox("own", 0)
			w.run("own", "app", 0)
			reported.until("own", in("app", pod.Running))
			other, err := runtime.Connect(t.Context(), runtime.Options{RuntimeEndpoint: w.Endpoint()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			}()
			theirs := &fixture{Runtime: w.Runtime, t: t, client: other}
			theirs.sandbox("a", 0)
			id := theirs.run("a", "app", 0)
			reported.until("a", in("app", pod.Running))
			w.End(id, runtimetest.End{})
			reported.until("a", in("app", pod.Exited))
		})
	}
}

func TestAnEventBeforeItsStateIsVisibleIsNotLost(t *testing.T) {
	each(t, withEvents, func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		id := w.run("a", "app", 0)
		reported.until("a", in("app", pod.Running))
		w.Hold()
		lists := w.Calls("ListContainers")
		w.End(id, runtimetest.End{Code: 1})
		eventually(t, "an inspection has not found the change", func() bool { return w.Calls("ListContainers") > lists+1 })
		w.Release()
		reported.until("a", in("app", pod.Exited))
	})
}

func TestAReasonSetAfterTheExitIsReported(t *testing.T) {
	each(t, kinds[1:2], func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		id := w.run("a", "app", 0)
		w.End(id, runtimetest.End{Code: 137})
		reported.until("a", in("app", pod.Exited))
		w.LateOOM(id)
		reported.until("a", func(observed pod.Observed) bool { return observed.Containers[0].Reason == "OOMKilled" })
	})
}

func TestChangesDuringAnOutageAreReportedAfterIt(t *testing.T) {
	each(t, kinds, func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		id := w.run("a", "app", 0)
		w.sandbox("b", 0)
		other := w.run("b", "app", 0)
		reported.until("a", in("app", pod.Running))
		reported.until("b", in("app", pod.Running))
		w.Down()
		w.End(id, runtimetest.End{Code: 4})
		eventually(t, "the runtime is missed", func() bool {
			_, err := w.client.Status(t.Context())
			return runtime.IsUnavailable(err) && w.client.Health().Err != nil
		})
		if err := w.Up(); err != nil {
			t.Fatal(err)
		}
		reported.until("a", in("app", pod.Exited))
		// Later changes are received too.
		w.End(other, runtimetest.End{})
		reported.until("b", in("app", pod.Exited))
		if health := w.client.Health(); health.Err != nil {
			t.Errorf("health %+v", health)
		}
	})
}

func TestABrokenEventStreamIsReopened(t *testing.T) {
	each(t, withEvents, func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		id := w.run("a", "app", 0)
		w.sandbox("b", 0)
		other := w.run("b", "app", 0)
		reported.until("a", in("app", pod.Running))
		reported.until("b", in("app", pod.Running))
		w.BreakStreams()
		w.End(id, runtimetest.End{})
		reported.until("a", in("app", pod.Exited))
		eventually(t, "the watch listens again", func() bool { return w.Listeners() == 1 })
		w.End(other, runtimetest.End{})
		reported.until("b", in("app", pod.Exited))
	})
}

func TestEventsAreUsedOnceTheRuntimeSupportsThem(t *testing.T) {
	w := start(t, runtimetest.Options{}, runtime.Options{CheckPeriod: 5 * time.Millisecond, PollPeriod: 5 * time.Millisecond})
	w.watch()
	w.Down()
	w.SetEvents(true)
	if err := w.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch listens", func() bool { return w.Listeners() == 1 })
}

func TestContainerdEventsReplaceMissingCRIEvents(t *testing.T) {
	w := start(t, runtimetest.Options{Name: "containerd"}, runtime.Options{PollPeriod: never, CheckPeriod: never})
	w.watch()
	eventually(t, "the watch listens", func() bool { return w.Listeners() == 1 })
	if w.Calls("GetContainerEvents") != 1 || w.Calls("Subscribe") != 1 {
		t.Errorf("CRI's events were requested %d times, containerd's %d times", w.Calls("GetContainerEvents"), w.Calls("Subscribe"))
	}
}

func TestARelistFindsChangesWithoutAnEvent(t *testing.T) {
	w := start(t, runtimetest.Options{Events: true}, runtime.Options{PollPeriod: 5 * time.Millisecond, CheckPeriod: 5 * time.Millisecond})
	w.sandbox("a", 0)
	id := w.run("a", "app", 0)
	reported := w.watch()
	reported.until("a", in("app", pod.Running))
	w.Change(id, func(status *runtimeapi.ContainerStatus) {
		status.State, status.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, 1
	})
	reported.until("a", in("app", pod.Exited))
}

func TestAWatchReportsWhatAnotherInspectionFound(t *testing.T) {
	// An inspection for another caller must not keep the watch from reporting.
	w := start(t, runtimetest.Options{}, runtime.Options{PollPeriod: 5 * time.Millisecond})
	w.sandbox("a", 0)
	id := w.run("a", "app", 0)
	reported := w.watch()
	reported.until("a", in("app", pod.Running))
	w.End(id, runtimetest.End{})
	w.inspect("a")
	reported.until("a", in("app", pod.Exited))
}

func TestObservationsOfAPodAreReportedInOrder(t *testing.T) {
	each(t, withEvents, func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		id := w.run("a", "app", 0)
		reported.until("a", in("app", pod.Running))
		// The watch's inspection hangs in the status request while another caller inspects
		// the pod.
		gate := make(chan struct{})
		before := w.Calls("ContainerStatus")
		w.Rule("ContainerStatus", runtimetest.Rule{Gate: gate, Times: 1})
		w.End(id, runtimetest.End{Code: 1})
		eventually(t, "the watch inspects the pod", func() bool { return w.Calls("ContainerStatus") > before })
		inspected := make(chan pod.Observed)
		go func() { inspected <- w.inspect("a") }()
		close(gate)
		fresh := <-inspected
		older := reported.until("a", in("app", pod.Exited))
		if !in("app", pod.Exited)(fresh) {
			t.Errorf("the later inspection has found %+v", fresh)
		}
		if older.Observed.Sequence == fresh.Sequence {
			t.Errorf("both observations have the number %d", fresh.Sequence)
		}
	})
}

func TestAContainerCreatedDuringAnInspectionStaysKnown(t *testing.T) {
	each(t, withEvents, func(t *testing.T, w *fixture, reported *reports) {
		// The inspection has listed sandboxes, and is about to list containers.
		gate := make(chan struct{})
		w.Rule("ListContainers", runtimetest.Rule{Gate: gate, Times: 1, Match: func(request proto.Message) bool {
			return request.(*runtimeapi.ListContainersRequest).GetFilter() != nil
		}})
		lists := w.Calls("ListContainers")
		inspected := make(chan pod.Observed)
		go func() { inspected <- w.inspect("a") }()
		eventually(t, "the inspection is in flight", func() bool { return w.Calls("ListContainers") > lists })
		box := w.sandbox("a", 0)
		close(gate)
		<-inspected
		w.BreakSandbox(box)
		reported.until("a", func(observed pod.Observed) bool { return len(observed.Sandboxes) == 1 && !observed.Sandboxes[0].Ready })
	})
}

func TestABurstOfEventsCausesOneInspection(t *testing.T) {
	each(t, withEvents, func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		var ids []string
		for range 50 {
			ids = append(ids, w.run("a", "app", uint32(len(ids))))
		}
		reported.until("a", func(observed pod.Observed) bool {
			return len(observed.Containers) == 50 && observed.Containers[0].State == pod.Running
		})
		gate := make(chan struct{})
		w.Rule("ListContainers", runtimetest.Rule{Gate: gate, Times: 1})
		w.End(ids[0], runtimetest.End{})
		lists := w.Calls("ListContainers")
		eventually(t, "the first inspection is in flight", func() bool { return w.Calls("ListContainers") > lists })
		lists = w.Calls("ListContainers")
		for _, id := range ids[1:] {
			w.End(id, runtimetest.End{})
		}
		// The watch processes events one by one: once it has processed one about another
		// pod, it has processed those before.
		w.sandbox("b", 0)
		w.run("b", "app", 0)
		reported.until("b", in("app", pod.Running))
		others := w.Calls("ListContainers") - lists
		close(gate)
		reported.until("a", func(observed pod.Observed) bool {
			for _, container := range observed.Containers {
				if container.State != pod.Exited {
					return false
				}
			}
			return true
		})
		if got := w.Calls("ListContainers") - lists - others; got > 2 {
			t.Errorf("%d inspections were made for one burst", got)
		}
	})
}

func TestAPodWithInvalidAnswersIsRetriedAndOthersAreReported(t *testing.T) {
	each(t, kinds, func(t *testing.T, w *fixture, reported *reports) {
		w.sandbox("a", 0)
		bad := w.run("a", "app", 0)
		w.sandbox("b", 0)
		good := w.run("b", "app", 0)
		reported.until("a", in("app", pod.Running))
		reported.until("b", in("app", pod.Running))
		w.Rule("ContainerStatus", runtimetest.Rule{Err: status.Error(codes.Internal, "corrupt"), Match: func(request proto.Message) bool {
			return request.(*runtimeapi.ContainerStatusRequest).ContainerId == bad
		}})
		w.End(bad, runtimetest.End{})
		w.End(good, runtimetest.End{})
		reported.until("b", in("app", pod.Exited))
		w.RemoveRules("ContainerStatus")
		reported.until("a", in("app", pod.Exited))
	})
}

func TestHangingContainersDoNotDelayOtherPods(t *testing.T) {
	each(t, kinds, func(t *testing.T, w *fixture, reported *reports) {
		hang := map[string]bool{}
		for i := range 10 {
			uid := fmt.Sprintf("hangs-%d", i)
			w.sandbox(uid, 0)
			hang[w.run(uid, "app", 0)] = true
			reported.until(uid, in("app", pod.Running))
		}
		w.sandbox("a", 0)
		good := w.run("a", "app", 0)
		reported.until("a", in("app", pod.Running))
		before := w.Calls("ContainerStatus")
		w.Rule("ContainerStatus", runtimetest.Rule{Hang: true, Match: func(request proto.Message) bool {
			return hang[request.(*runtimeapi.ContainerStatusRequest).ContainerId]
		}})
		for id := range hang {
			w.End(id, runtimetest.End{})
		}
		eventually(t, "the maximum of inspections is in flight", func() bool { return w.Calls("ContainerStatus") >= before+8 })
		w.End(good, runtimetest.End{})
		reported.until("a", in("app", pod.Exited))
	})
}

func TestAWatchSurvivesAHangingRuntime(t *testing.T) {
	t.Parallel() // it lasts until a request times out
	w := start(t, runtimetest.Options{}, runtime.Options{PollPeriod: 5 * time.Millisecond, RequestTimeout: 3 * time.Second})
	w.sandbox("a", 0)
	id := w.run("a", "app", 0)
	reported := w.watch()
	reported.until("a", in("app", pod.Running))
	w.Rule("ListPodSandbox", runtimetest.Rule{Hang: true})
	eventually(t, "the runtime is missed", func() bool { return w.client.Health().Err != nil })
	w.End(id, runtimetest.End{})
	w.RemoveRules("ListPodSandbox")
	reported.until("a", in("app", pod.Exited))
}

func TestNoRequestsAreMadeWithoutChanges(t *testing.T) {
	each(t, withEvents, func(t *testing.T, w *fixture, reported *reports) {
		for _, uid := range []string{"a", "b", "c"} {
			w.sandbox(uid, 0)
			w.run(uid, "app", 0)
			reported.until(uid, in("app", pod.Running))
		}
		// Relists that find nothing new; the first ones may overlap with the inspections
		// at the start of the pods.
		eventually(t, "pods are listed without a request for a status", func() bool {
			calls, lists := w.Calls("ContainerStatus"), w.Calls("ListPodSandbox")
			w.BreakStreams()
			eventually(t, "pods are listed again", func() bool { return w.Calls("ListPodSandbox") > lists && w.Listeners() == 1 })
			return w.Calls("ContainerStatus") == calls
		})
	})
}

func TestRelistsAreMeasured(t *testing.T) {
	intervals := make(chan time.Duration, 100)
	w := start(t, runtimetest.Options{}, runtime.Options{
		PollPeriod: 5 * time.Millisecond,
		Relisted: func(_, interval time.Duration) {
			select {
			case intervals <- interval:
			default: // the test has seen enough
			}
		},
	})
	w.watch()
	if first := <-intervals; first != 0 {
		t.Errorf("the first relist is %s after another one", first)
	}
	if second := <-intervals; second < 5*time.Millisecond {
		t.Errorf("the second relist is %s after the first one", second)
	}
}

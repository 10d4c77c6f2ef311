package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
)

var created = time.Date(2026, 3, 1, 10, 0, 30, 0, time.UTC)

func newCronJob(policy batchv1.ConcurrencyPolicy) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", UID: "c1", CreationTimestamp: metav1.NewTime(created)},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", ConcurrencyPolicy: policy},
	}
}

// fixture is a reconciler of objects in a fake API.
type fixture struct {
	reconciler
	events *record.FakeRecorder
}

func newFixture(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *fixture {
	t.Helper()
	byController := index.ByController(&batchv1.Job{})
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&batchv1.CronJob{}).
		WithIndex(byController.Object, byController.Name, byController.Values).WithInterceptorFuncs(funcs).Build()
	events := record.NewFakeRecorder(100)
	return &fixture{events: events, reconciler: reconciler{
		client: c, live: c, recorder: events, kind: batchv1.SchemeGroupVersion.WithKind("CronJob"),
		now: func() time.Time { return created }, skew: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "skew"}),
	}}
}

func (f *fixture) syncAt(t *testing.T, at time.Time) (reconcile.Result, error) {
	t.Helper()
	f.now = func() time.Time { return at }
	return f.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "report"}})
}

func (f *fixture) jobNames(t *testing.T) []string {
	t.Helper()
	var list batchv1.JobList
	if err := f.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, job := range list.Items {
		names = append(names, job.Name)
	}
	return names
}

// expectEvents checks the reasons of the events since the last call.
func (f *fixture) expectEvents(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for len(f.events.Events) > 0 {
		got = append(got, strings.Fields(<-f.events.Events)[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestADueJobIsCreatedOnceAndRecorded(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{}, newCronJob(batchv1.AllowConcurrent))
	for range 2 {
		result, err := f.syncAt(t, created.Add(40*time.Second))
		if err != nil || result.RequeueAfter != 50*time.Second {
			t.Fatal(result, err)
		}
	}
	if got := f.jobNames(t); !slices.Equal(got, []string{"report-29539321"}) {
		t.Errorf("jobs %v", got)
	}
	f.expectEvents(t, "SuccessfulCreate")
	var job batchv1.Job
	var cronJob batchv1.CronJob
	if err := errors.Join(f.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "report-29539321"}, &job),
		f.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "report"}, &cronJob)); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(&job, &cronJob) || len(cronJob.Status.Active) != 1 || cronJob.Status.Active[0].Name != job.Name {
		t.Errorf("owners %v, active %v", job.OwnerReferences, cronJob.Status.Active)
	}
}

func TestAJobOfAnotherOwnerWithTheNameIsLeftAlone(t *testing.T) {
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report-29539321"}}
	f := newFixture(t, interceptor.Funcs{}, newCronJob(batchv1.AllowConcurrent), foreign)
	if _, err := f.syncAt(t, created.Add(40*time.Second)); err != nil {
		t.Fatal(err)
	}
	f.expectEvents(t, "FailedCreate")
	var cronJob batchv1.CronJob
	if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "report"}, &cronJob); err != nil {
		t.Fatal(err)
	}
	if len(cronJob.Status.Active) != 0 {
		t.Errorf("active: %v", cronJob.Status.Active)
	}
}

func TestAReplacedJobIsDeletedBeforeTheNextIsCreated(t *testing.T) {
	refuse := true
	f := newFixture(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
		if refuse {
			return errors.New("refused")
		}
		return c.Delete(ctx, obj, opts...)
	}}, newCronJob(batchv1.ReplaceConcurrent))
	if _, err := f.syncAt(t, created.Add(40*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.syncAt(t, created.Add(100*time.Second)); err == nil {
		t.Error("the failed deletion is not an error")
	}
	if got := f.jobNames(t); !slices.Equal(got, []string{"report-29539321"}) {
		t.Errorf("jobs %v", got)
	}
	refuse = false
	if _, err := f.syncAt(t, created.Add(100*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := f.jobNames(t); !slices.Equal(got, []string{"report-29539322"}) {
		t.Errorf("jobs %v", got)
	}
	f.expectEvents(t, "SuccessfulCreate", "FailedDelete", "SuccessfulDelete", "SuccessfulCreate")
}

func TestAnActiveJobThatTheCacheLacksIsReadFromTheAPIServer(t *testing.T) {
	cronJob := newCronJob(batchv1.ForbidConcurrent)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "report-29539321", UID: "j1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronJob, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
	}}
	cronJob.Status.Active = []corev1.ObjectReference{{Name: job.Name, UID: job.UID}}
	cronJob.Status.LastScheduleTime = &metav1.Time{Time: created.Add(30 * time.Second)}
	f := newFixture(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil }}, cronJob, job)
	if _, err := f.syncAt(t, created.Add(100*time.Second)); err != nil {
		t.Fatal(err)
	}
	f.expectEvents(t, "JobAlreadyActive")
}

// TestANewScheduleDoesNotStartAJobForATimeBeforeTheChange: neither at once nor at the next
// start, also if the controller is restarted in between.
func TestANewScheduleDoesNotStartAJobForATimeBeforeTheChange(t *testing.T) {
	for _, test := range []struct {
		name           string
		before, change string
		restart        bool
	}{
		{"it runs", "0 12 * * *", "0 13 * * *", false},
		{"it is restarted after the change", "0 12 * * *", "0 13 * * *", true},
		{"it is restarted after a change from a constant delay", "@every 24h", "0 13 * * *", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cronJob := newCronJob(batchv1.AllowConcurrent)
			cronJob.Spec.Schedule = test.before
			noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			if test.before == "@every 24h" {
				cronJob.CreationTimestamp = metav1.NewTime(noon.Add(-24 * time.Hour))
			}
			f := newFixture(t, interceptor.Funcs{}, cronJob)
			if _, err := f.syncAt(t, noon); err != nil {
				t.Fatal(err)
			}
			if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(cronJob), cronJob); err != nil {
				t.Fatal(err)
			}
			cronJob.Spec.Schedule = test.change
			if err := f.client.Update(t.Context(), cronJob); err != nil {
				t.Fatal(err)
			}
			if test.restart {
				f.changes = changes{}
			}
			for _, at := range []time.Time{noon.Add(2 * time.Hour), noon.Add(24 * time.Hour), noon.Add(25 * time.Hour)} {
				if _, err := f.syncAt(t, at); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := f.jobNames(t), []string{"report-29539440", "report-29540940"}; !slices.Equal(got, want) {
				t.Errorf("jobs %v, want %v: at 12:00 of the first day and at 13:00 of the next", got, want)
			}
		})
	}
}

// TestTheEndOfASuspensionStartsWhatWasMissed: also by a schedule that was changed while the
// cron job was suspended, and whether or not the controller saw both changes one by one.
func TestTheEndOfASuspensionStartsWhatWasMissed(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("both changes in one: %t", together), func(t *testing.T) {
			cronJob := newCronJob(batchv1.AllowConcurrent)
			cronJob.Spec.Schedule, cronJob.Spec.Suspend = "0 12 * * *", ptr.To(true)
			f := newFixture(t, interceptor.Funcs{}, cronJob)
			sync := func(at time.Time) {
				t.Helper()
				if _, err := f.syncAt(t, at); err != nil {
					t.Fatal(err)
				}
			}
			change := func(edit func(*batchv1.CronJobSpec)) {
				t.Helper()
				if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(cronJob), cronJob); err != nil {
					t.Fatal(err)
				}
				edit(&cronJob.Spec)
				if err := f.client.Update(t.Context(), cronJob); err != nil {
					t.Fatal(err)
				}
			}
			noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			sync(noon)
			change(func(s *batchv1.CronJobSpec) { s.Schedule = "0 13 * * *" })
			if !together {
				sync(noon.Add(2 * time.Hour))
			}
			change(func(s *batchv1.CronJobSpec) { s.Suspend = nil })
			sync(noon.Add(2 * time.Hour))
			sync(noon.Add(2*time.Hour + time.Minute))
			if got, want := f.jobNames(t), []string{"report-29539500"}; !slices.Equal(got, want) {
				t.Errorf("jobs %v, want %v: that of 13:00", got, want)
			}
		})
	}
}

// TestAMissedStartIsMadeUpForAfterARestart: the schedule has not changed.
func TestAMissedStartIsMadeUpForAfterARestart(t *testing.T) {
	cronJob := newCronJob(batchv1.AllowConcurrent)
	cronJob.Spec.Schedule, cronJob.Spec.TimeZone = "30 13 * * *", ptr.To("Europe/Berlin")
	f := newFixture(t, interceptor.Funcs{}, cronJob)
	for day := range 2 {
		if _, err := f.syncAt(t, created.AddDate(0, 0, day).Add(4*time.Hour)); err != nil {
			t.Fatal(err)
		}
		f.changes = changes{}
	}
	if got, want := f.jobNames(t), []string{"report-29539470", "report-29540910"}; !slices.Equal(got, want) {
		t.Errorf("jobs %v, want %v: at 12:30 UTC of two days", got, want)
	}
}

package cronjob

import (
	"context"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// finish ends the jobs that run, as their controller does.
func (f *fixture) finish(t *testing.T, at time.Time, condition batchv1.JobConditionType) {
	t.Helper()
	var list batchv1.JobList
	if err := f.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		job := &list.Items[i]
		if len(job.Status.Conditions) > 0 {
			continue
		}
		job.Status = batchv1.JobStatus{
			StartTime: ptr.To(metav1.NewTime(at)), CompletionTime: ptr.To(metav1.NewTime(at)),
			Conditions: []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}},
		}
		if err := f.client.Status().Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADayHasAJobForEachTimeOfTheScheduleAndKeepsTheLastOnes(t *testing.T) {
	cronJob := newCronJob(batchv1.ForbidConcurrent)
	cronJob.Spec.Schedule = "*/15 * * * *"
	cronJob.Spec.SuccessfulJobsHistoryLimit, cronJob.Spec.FailedJobsHistoryLimit = ptr.To(int32(3)), ptr.To(int32(1))
	var f *fixture
	var started []time.Time
	f = newFixture(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		started = append(started, f.now())
		obj.SetUID(types.UID(obj.GetName()))
		return c.Create(ctx, obj, opts...)
	}}, cronJob)
	// The controller is woken when it asks for it, and when a job, which takes a minute, ends.
	end, wakeups := created.Add(24*time.Hour), 0
	for now := created; now.Before(end); wakeups++ {
		if _, err := f.syncAt(t, now); err != nil {
			t.Fatal(err)
		}
		condition := batchv1.JobComplete
		if len(started)%4 == 0 {
			condition = batchv1.JobFailed
		}
		f.finish(t, now.Add(time.Minute), condition)
		result, err := f.syncAt(t, now.Add(time.Minute))
		if err != nil || result.RequeueAfter <= 0 {
			t.Fatalf("at %s: requeue after %s, %v", f.now(), result.RequeueAfter, err)
		}
		now = f.now().Add(result.RequeueAfter)
		for len(f.events.Events) > 0 {
			<-f.events.Events
		}
	}
	var want []time.Time
	for at := created.Truncate(15 * time.Minute).Add(15 * time.Minute); at.Before(end); at = at.Add(15 * time.Minute) {
		want = append(want, at)
	}
	if len(want) != 96 || !slices.EqualFunc(started, want, time.Time.Equal) {
		t.Errorf("jobs were created at %v, want one each quarter of an hour, %d", started, len(want))
	}
	if wakeups != len(want)+1 { // and when the cron job was created
		t.Errorf("%d wakeups for %d jobs", wakeups, len(want))
	}
	if got := f.jobNames(t); len(got) != 4 {
		t.Errorf("jobs %v are kept, want three that succeeded and one that failed", got)
	}
	if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(cronJob), cronJob); err != nil {
		t.Fatal(err)
	}
	if s := cronJob.Status; len(s.Active) > 0 || s.LastScheduleTime == nil || !s.LastScheduleTime.Time.Equal(want[95]) {
		t.Errorf("status %+v", s)
	}
}

package cronjob

import (
	"context"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestAChangeDuringARestartHasTheTimeOfTheFieldsManager(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := noon.Add(4 * time.Hour)
	entry := func(at time.Time, subresource, fields string) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: "m", Time: &metav1.Time{Time: at}, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}, Subresource: subresource}
		e.FieldsV1.SetRawBytes([]byte(fields))
		return e
	}
	const schedule, zone, other = `{"f:spec":{"f:schedule":{}}}`, `{"f:spec":{"f:timeZone":{}}}`, `{"f:spec":{"f:suspend":{}}}`
	for _, test := range []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    time.Time
	}{
		{"no managers", nil, now},
		{"managers of other fields", []metav1.ManagedFieldsEntry{entry(noon.Add(time.Hour), "", other), entry(noon.Add(time.Hour), "status", `{"f:status":{}}`)}, now},
		{"the schedule", []metav1.ManagedFieldsEntry{entry(noon.Add(time.Hour), "", schedule)}, noon.Add(time.Hour)},
		{"the time zone", []metav1.ManagedFieldsEntry{entry(noon.Add(-time.Hour), "", schedule), entry(noon.Add(2*time.Hour), "", zone)}, noon.Add(2 * time.Hour)},
		{"a second owner applies the same", []metav1.ManagedFieldsEntry{entry(noon.Add(2*time.Hour), "", schedule), entry(noon.Add(time.Hour), "", schedule)}, noon.Add(time.Hour)},
		{"set before the last start, so that something else changed", []metav1.ManagedFieldsEntry{entry(noon.Add(-time.Hour), "", schedule)}, now},
		{"a clock that is ahead", []metav1.ManagedFieldsEntry{entry(now.Add(time.Hour), "", schedule)}, now},
	} {
		cronJob := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{UID: "u", ManagedFields: test.entries},
			Spec:       batchv1.CronJobSpec{Schedule: "0 13 * * *"},
			Status:     batchv1.CronJobStatus{LastScheduleTime: &metav1.Time{Time: noon}},
		}
		// The cache has no managedFields.
		cached := cronJob.DeepCopy()
		cached.ManagedFields = nil
		var c changes
		key := types.NamespacedName{Name: "c"}
		if got, seen := c.at(key, cached, now); seen {
			t.Errorf("%s: %v without the managers of the fields", test.name, got)
		}
		if got := c.missed(key, cached, cronJob, now); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if got, seen := c.at(key, cached, now.Add(time.Hour)); !seen || !got.Equal(test.want) {
			t.Errorf("%s: then %v, want %v", test.name, got, test.want)
		}
	}
}

// TestAStartBetweenAChangeOfTheScheduleAndARestartIsMadeUpFor: the cache, which has no
// managedFields, does not say when the schedule was changed.
func TestAStartBetweenAChangeOfTheScheduleAndARestartIsMadeUpFor(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cronJob := newCronJob(batchv1.AllowConcurrent)
	cronJob.Spec.Schedule = "0 13 * * *"
	cronJob.Status.LastScheduleTime = &metav1.Time{Time: noon}
	set := metav1.ManagedFieldsEntry{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "batch/v1", Time: &metav1.Time{Time: noon.Add(time.Minute)}, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}}
	set.FieldsV1.SetRawBytes([]byte(`{"f:spec":{"f:schedule":{}}}`))
	f := newFixture(t, interceptor.Funcs{}, cronJob)
	stored := f.client.(client.WithWatch)
	with := func(entries ...metav1.ManagedFieldsEntry) client.Client {
		return interceptor.NewClient(stored, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			obj.SetManagedFields(entries)
			return err
		}})
	}
	f.client, f.live = with(), with(set)
	if _, err := f.syncAt(t, noon.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, want := f.jobNames(t), []string{"report-29539500"}; !slices.Equal(got, want) {
		t.Errorf("jobs %v, want %v: that of 13:00", got, want)
	}
}

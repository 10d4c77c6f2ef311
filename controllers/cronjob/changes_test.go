package cronjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		var c changes
		if got := c.at(types.NamespacedName{Name: "c"}, cronJob, now); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

package legacytokencleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	const period = 30 * 24 * time.Hour
	ago := func(days int) time.Time { return now.AddDate(0, 0, -days) }
	day := func(days int) time.Time { return ago(days).Truncate(24 * time.Hour) } // as in the config map
	date := func(days int) string { return ago(days).Format(dateFormat) }
	listed := &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "t"}}}
	for _, test := range []struct {
		rule              string
		created           int
		used, marked      string
		account           *corev1.ServiceAccount
		mounted, deleting bool
		tracked           time.Time
		want              action
	}{
		{rule: "never used since the tracking began", created: 90, account: listed, tracked: ago(60), want: mark},
		{rule: "last used long ago", created: 90, used: date(31), account: listed, tracked: ago(60), want: mark},
		{rule: "used on the day of the threshold", created: 90, used: date(30), account: listed, tracked: ago(60), want: keep},
		{rule: "used lately", created: 90, used: date(1), account: listed, tracked: ago(60), want: keep},
		{rule: "an unreadable date of its use", created: 90, used: "never", account: listed, tracked: ago(60), want: keep},
		{rule: "tracked for too short a time", created: 90, account: listed, tracked: day(30), want: keep},
		{rule: "not tracked", created: 90, account: listed, want: keep},
		{rule: "last used long ago, tracked for too short a time", created: 90, used: date(40), account: listed, tracked: day(30), want: keep},
		{rule: "last used long ago, tracked since the day before a period ago", created: 90, used: date(40), account: listed, tracked: day(31), want: mark},
		{rule: "last used long ago, not tracked", created: 90, used: date(40), account: listed, want: keep},
		{rule: "marked long ago, tracked for too short a time", created: 90, used: date(60), marked: date(40), account: listed, tracked: day(10), want: keep},
		{rule: "marked long ago, not tracked", created: 90, used: date(60), marked: date(40), account: listed, want: keep},
		{rule: "new", created: 30, account: listed, tracked: ago(60), want: keep},
		{rule: "made by a user", created: 90, account: &corev1.ServiceAccount{}, tracked: ago(60), want: keep},
		{rule: "without an account", created: 90, tracked: ago(60), want: keep},
		{rule: "mounted by a pod", created: 90, account: listed, mounted: true, tracked: ago(60), want: keep},
		{rule: "being deleted", created: 90, account: listed, deleting: true, tracked: ago(60), want: keep},
		{rule: "marked lately", created: 90, marked: date(30), account: listed, tracked: ago(60), want: keep},
		{rule: "marked long ago", created: 90, marked: date(31), account: listed, tracked: ago(60), want: remove},
		{rule: "marked long ago, but used since", created: 90, marked: date(31), used: date(2), account: listed, tracked: ago(60), want: keep},
		{rule: "an unreadable mark", created: 90, marked: "yes", account: listed, tracked: ago(60), want: mark},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "t", CreationTimestamp: metav1.NewTime(ago(test.created)), Labels: map[string]string{}}}
		for label, value := range map[string]string{lastUsedLabel: test.used, invalidSinceLabel: test.marked} {
			if value != "" {
				secret.Labels[label] = value
			}
		}
		if test.deleting {
			secret.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got := decide(state{secret, test.account, test.mounted, test.tracked}, now, period); got != test.want {
			t.Errorf("%s: %s, want %s", test.rule, got, test.want)
		}
	}
}

func TestThePeriodIsAtLeastADay(t *testing.T) {
	if errs := atLeastADay(time.Hour); len(errs) != 1 {
		t.Errorf("an hour: %v", errs)
	}
	if errs := atLeastADay(24 * time.Hour); len(errs) != 0 {
		t.Errorf("a day: %v", errs)
	}
}

package authorization

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestAnswersOfTheWebhookAreCachedForTheTimesOfTheFlags(t *testing.T) {
	for _, test := range []struct {
		authorized, unauthorized time.Duration
		jane, joe                int32 // how often the webhook is asked about a user that it allows, and about one that it does not
	}{
		{time.Hour, time.Hour, 1, 1},
		{0, time.Hour, 3, 1},
		{time.Hour, 0, 1, 3},
	} {
		hook := &reviewer{}
		hook.allowed.Store(&[]string{"jane"})
		config := NewConfig()
		config.Modes, config.Webhook.File, config.Webhook.Version = []string{Webhook}, hook.kubeconfig(t), "v1"
		config.Webhook.AuthorizedTTL, config.Webhook.UnauthorizedTTL = test.authorized, test.unauthorized
		a, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int32{"jane": test.jane, "joe": test.joe} {
			before := hook.asked.Load()
			for range 3 {
				if got := decide(t, a, name); (got == authorizer.DecisionAllow) != (name == "jane") {
					t.Errorf("%s: %v", name, got)
				}
			}
			if asked := hook.asked.Load() - before; asked != want {
				t.Errorf("caches of %s and %s: asked %d times about %s, want %d", test.authorized, test.unauthorized, asked, name, want)
			}
		}
	}
}

func TestMetricsOfWebhooksHaveTheNamesOfKubernetes(t *testing.T) {
	hook := &reviewer{}
	hook.allowed.Store(&[]string{"jane"})
	byFlags, byFile := NewConfig(), NewConfig()
	byFlags.Modes, byFlags.Webhook.File, byFlags.Webhook.Version = []string{Webhook}, hook.kubeconfig(t), "v1"
	byFile.File = writeFile(t, "config.yaml", strings.Replace(structured, "FILE", hook.kubeconfig(t), 1))
	for _, config := range []Config{byFlags, byFile} {
		a, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"jane", "joe", "local"} {
			decide(t, a, name)
		}
		hook.broken.Store(true)
		decide(t, a, "jim")
		hook.broken.Store(false)
	}
	found := series(t)
	for _, want := range []string{
		"apiserver_authorization_decisions_total decision=allowed name=default type=Webhook",
		"apiserver_authorization_decisions_total decision=allowed name=company type=Webhook",
		"apiserver_authorization_webhook_evaluations_total name=default result=success",
		"apiserver_authorization_webhook_evaluations_total name=company result=error",
		"apiserver_authorization_webhook_duration_seconds name=default result=success",
		"apiserver_authorization_webhook_duration_seconds name=company result=success",
		"apiserver_authorization_webhook_evaluations_fail_open_total name=default result=error",
		"apiserver_authorization_match_condition_exclusions_total name=company type=Webhook",
		"apiserver_authorization_match_condition_evaluation_seconds name=company type=Webhook",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("there is no %s", want)
		}
	}
	// With failurePolicy Deny, no failure lets a request pass.
	if closed := "apiserver_authorization_webhook_evaluations_fail_open_total name=company result=error"; slices.Contains(found, closed) {
		t.Errorf("there is %s", closed)
	}
}

// series returns the names and labels of all metrics.
func series(t *testing.T) []string {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			one := family.GetName()
			for _, label := range metric.GetLabel() { // sorted by name
				one += " " + label.GetName() + "=" + label.GetValue()
			}
			found = append(found, one)
		}
	}
	return found
}

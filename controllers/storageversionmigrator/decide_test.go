package storageversionmigrator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// of returns the migrations that a text lists: "name@second: conditions that are true".
func of(text string) []*migration {
	var all []*migration
	for line := range strings.SplitSeq(text, "\n") {
		head, conditions, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found {
			continue
		}
		name, second, _ := strings.Cut(head, "@")
		m := &migration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		var age int64
		_, _ = fmt.Sscan(second, &age)
		m.CreationTimestamp = metav1.Unix(age, 0)
		for _, c := range strings.Fields(conditions) {
			set(m, storagemigrationv1.MigrationConditionType(c), metav1.ConditionTrue, "Test", "", time.Unix(0, 0))
		}
		all = append(all, m)
	}
	return all
}

func TestMigrationsOfAResourceRunOneAfterTheOther(t *testing.T) {
	for _, test := range []struct{ name, all, want string }{
		{"none", "", ""},
		{"the oldest starts", "b@2:\n a@3:\n c@1:", "start c"},
		{"of two of the same age, the first by name", "b@1:\n a@1:", "start a"},
		{"one that runs goes on, however old the others are", "a@1:\n b@2: Running", "run b"},
		{"of two that were started by two managers the older one runs", "a@2: Running\n b@1: Running", "run b"},
		{"one that has ended lets the next one start", "a@1: Succeeded\n b@2:", "start b"},
		{"one that has just ended is finished, and the next one starts", "a@1: Running Succeeded\n b@2:", "finish a, start b"},
		{"one that has failed is finished, too", "a@1: Running Failed", "finish a"},
		{"those that have ended need nothing", "a@1: Succeeded\n b@2: Failed", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := decide(of(test.all))
			var got []string
			for _, m := range s.finish {
				got = append(got, "finish "+m.Name)
			}
			if s.run != nil {
				got = append(got, "run "+s.run.Name)
			}
			if s.start != nil {
				got = append(got, "start "+s.start.Name)
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
		})
	}
}

func TestMessageOfARunningMigration(t *testing.T) {
	for _, test := range []struct {
		left, objects int
		err           error
		want          string
	}{
		{0, 0, nil, "The migration is running"},
		{2, 5, nil, "The migration is running, 2/5 objects not yet migrated"},
		{0, 5, nil, "The migration is running, 5 objects verified migrated"},
		{2, 5, errors.New("busy"), "The migration is running, 2/5 objects not yet migrated; transient error: busy"},
	} {
		if got := message(test.left, test.objects, test.err); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestErrorsAfterWhichAMigrationIsTriedAgain(t *testing.T) {
	group := schema.GroupResource{Resource: "secrets"}
	_, malformed := resourceversion.CompareResourceVersion("a", "b")
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"no connection", errors.New("dial: connection refused"), true},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), true},
		{"internal", apierrors.NewInternalError(errors.New("etcd")), true},
		{"timeout", apierrors.NewServerTimeout(group, "patch", 1), true},
		{"refused", apierrors.NewForbidden(group, "a", errors.New("policy")), false},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "a", nil), false},
		{"a version that is not a number", malformed, false},
	} {
		if got := isTransient(fmt.Errorf("secrets n/a: %w", test.err)); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestStoredVersionsAreRemovedIfTheDefinitionHasNotChangedMeanwhile(t *testing.T) {
	now := time.Unix(1000, 0)
	const mismatch = "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	for _, test := range []struct {
		name               string
		generation, marked int64 // marked 0: not marked
		ended, success     bool
		want, message      string
	}{
		{"unchanged", 3, 3, false, true, "v2", "The migration has succeeded and the stored versions have been updated"},
		{"changed", 4, 3, false, true, "v1 v2", mismatch},
		{"made again", 1, 0, false, true, "v1 v2", mismatch},
		{"failed", 3, 3, false, false, "v1 v2", "The migration has failed"},
		{"recorded before a restart", 3, 3, true, true, "v1 v2", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Generation: test.marked}}
			d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}, {Name: "v2", Storage: true}}
			d.Status.StoredVersions = []string{"v1", "v2"}
			d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
			if test.marked > 0 {
				status := apiextensionsv1.ConditionTrue
				if test.ended {
					status = apiextensionsv1.ConditionFalse
				}
				mark(d, status, "", "", now)
			}
			d.Generation = test.generation
			finish(d, test.success, now)
			if got := strings.Join(d.Status.StoredVersions, " "); got != test.want {
				t.Errorf("stored versions %s", got)
			}
			c := d.Status.Conditions[1]
			if len(d.Status.Conditions) != 2 || c.Status != apiextensionsv1.ConditionFalse || c.Message != test.message {
				t.Errorf("conditions %+v", d.Status.Conditions)
			}
		})
	}
}

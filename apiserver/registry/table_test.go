package registry_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

func contains(s, part string) bool { return strings.Contains(s, part) }

func tableOf(s *registrytest.Stack, path string) *metav1.Table {
	table := &metav1.Table{}
	s.Do(http.MethodGet, path, nil, "Accept", asTable).Want(http.StatusOK).Into(table)
	return table
}

func TestATableHasTheColumnsOfTheDeclaration(t *testing.T) {
	d := set()
	d.Columns = append(d.Columns, resource.Wide(resource.Column[*appsv1.Deployment]{
		Name: "Strategy", Format: "password", Description: "How.", Value: func(d *appsv1.Deployment) any { return string(d.Spec.Strategy.Type) },
	})...)
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	table := tableOf(s, sets)
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, fmt.Sprintf("%s/%s/%s/%d", c.Name, c.Type, c.Format, c.Priority))
	}
	if got := strings.Join(columns, " "); got != "Name/string/name/0 Replicas/integer//0 Age/string//0 Strategy/string/password/1" {
		t.Errorf("the columns are %s", got)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	cells := table.Rows[0].Cells
	if age, ok := cells[2].(string); cells[0] != "a" || cells[1] != float64(0) || !ok || !strings.HasSuffix(age, "s") {
		t.Errorf("the row is %v: dates become ages", cells)
	}
	if row := string(table.Rows[0].Object.Raw); !contains(row, `"kind":"PartialObjectMetadata"`) || !contains(row, `"name":"a"`) {
		t.Errorf("the row stands for %s", row)
	}
}

func TestAKindWithoutColumnsGetsNameAndDate(t *testing.T) {
	d := set()
	d.Columns = nil
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	table := tableOf(s, aSet)
	if len(table.ColumnDefinitions) != 2 || table.ColumnDefinitions[0].Name != "Name" || table.ColumnDefinitions[1].Name != "Created At" {
		t.Errorf("the columns are %+v", table.ColumnDefinitions)
	}
}

func TestATableOfAListHasTheListsMetadata(t *testing.T) {
	s := startSet(t)
	s.Do(http.MethodPost, sets, strings.Replace(setBody, "name: a", "name: b", 1)).Want(http.StatusCreated)
	s.Do(http.MethodPost, sets, strings.Replace(setBody, "name: a", "name: c", 1)).Want(http.StatusCreated)
	table := tableOf(s, sets+"?limit=1")
	if len(table.Rows) != 1 || table.Continue == "" || table.ResourceVersion == "" || table.RemainingItemCount == nil || *table.RemainingItemCount != 2 {
		t.Errorf("got %+v", table)
	}
}

func TestATableOfAnObjectHasTheObjectsVersion(t *testing.T) {
	s := startSet(t)
	if table, obj := tableOf(s, aSet), s.Do(http.MethodGet, aSet, nil).Object(); table.ResourceVersion != obj.GetResourceVersion() {
		t.Errorf("the table's version is %q, the object's %q", table.ResourceVersion, obj.GetResourceVersion())
	}
}

func TestAStatusHasTheTableOfItsObject(t *testing.T) {
	s := startSet(t)
	if table := tableOf(s, aSet+"/status"); len(table.ColumnDefinitions) != 3 || len(table.Rows) != 1 {
		t.Errorf("got %+v", table)
	}
}

func TestATableHasNoObjectsIfTheClientAsksForNone(t *testing.T) {
	s := startSet(t)
	if table := tableOf(s, sets+"?includeObject=None"); len(table.Rows) != 1 || len(table.Rows[0].Object.Raw) > 0 {
		t.Errorf("got %+v", table)
	}
}

func TestAWatchAsATableNamesItsColumnsOnce(t *testing.T) {
	s := startSet(t)
	resp := s.Send(http.MethodGet, sets+"?watch=1", nil, "Accept", asTable)
	defer resp.Body.Close()
	s.Patch("merge", aSet+"/status", `{status: {replicas: 2}}`).Want(http.StatusOK)
	events := json.NewDecoder(resp.Body)
	for i, want := range []struct {
		columns int
		cell    float64
	}{{3, 0}, {0, 2}} {
		var event struct{ Object metav1.Table }
		if err := events.Decode(&event); err != nil {
			t.Fatal(err)
		}
		if table := event.Object; len(table.ColumnDefinitions) != want.columns || len(table.Rows) != 1 || table.Rows[0].Cells[1] != want.cell {
			t.Errorf("event %d is %+v", i, table)
		}
	}
}

func TestTheRowsOfATableAreInTheOrderOfTheDeclaration(t *testing.T) {
	d := set()
	d.Order = func(a, b *appsv1.Deployment) int { return strings.Compare(b.Name, a.Name) }
	s := registrytest.Start(t, d)
	for _, name := range []string{"b", "a", "c"} {
		s.Do(http.MethodPost, sets, strings.Replace(setBody, "name: a", "name: "+name, 1)).Want(http.StatusCreated)
	}
	var names []any
	for _, row := range tableOf(s, sets).Rows {
		names = append(names, row.Cells[0])
	}
	if !slices.Equal(names, []any{"c", "b", "a"}) {
		t.Errorf("the rows are %v", names)
	}
}

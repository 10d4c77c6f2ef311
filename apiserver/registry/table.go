package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/resource"
)

// table converts objects and lists to the table view of their kind.
type table struct {
	columns     []resource.KindColumn
	definitions []metav1.TableColumnDefinition
	clock       clock.PassiveClock
	// order is nil where rows are in the order of the list.
	order func(a, b runtime.Object) int
}

func newTable(kind *resource.Kind, clock clock.PassiveClock) rest.TableConvertor {
	if len(kind.Columns) == 0 {
		return rest.NewDefaultTableConvertor(kind.Resource())
	}
	t := tableOf(kind.Columns, clock)
	t.order = kind.Order
	return t
}

// tableOf returns the table view with these columns; the clock is for ages.
func tableOf(columns []resource.KindColumn, clock clock.PassiveClock) *table {
	t := &table{columns: columns, clock: clock}
	for _, c := range columns {
		if c.Type == "" {
			c.Type = "string"
		}
		t.definitions = append(t.definitions, metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
		})
	}
	return t
}

// ConvertToTable implements rest.TableConvertor.
func (t *table) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	made, now := &metav1.Table{}, t.clock.Now()
	if opt, ok := options.(*metav1.TableOptions); !ok || opt == nil || !opt.NoHeaders {
		made.ColumnDefinitions = t.definitions
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		made.ResourceVersion, made.Continue, made.RemainingItemCount = list.GetResourceVersion(), list.GetContinue(), list.GetRemainingItemCount()
		made.Rows = make([]metav1.TableRow, 0, meta.LenList(obj))
		err := meta.EachListItem(obj, func(item runtime.Object) error {
			made.Rows = append(made.Rows, t.row(item, now))
			return nil
		})
		if t.order != nil {
			slices.SortStableFunc(made.Rows, func(a, b metav1.TableRow) int { return t.order(a.Object.Object, b.Object.Object) })
		}
		return made, err
	}
	m, err := meta.CommonAccessor(obj)
	if err != nil {
		return nil, fmt.Errorf("table of %T: %w", obj, err)
	}
	made.ResourceVersion = m.GetResourceVersion()
	made.Rows = []metav1.TableRow{t.row(obj, now)}
	return made, nil
}

func (t *table) row(obj runtime.Object, now time.Time) metav1.TableRow {
	cells := make([]any, len(t.columns))
	for i, c := range t.columns {
		cells[i] = c.Cell(obj, now)
	}
	return metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: obj}}
}

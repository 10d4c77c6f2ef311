package registry

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type internalListOptions = internalversion.ListOptions

// resetFields implements rest.ResetFieldsStrategy.
type resetFields map[fieldpath.APIVersion]*fieldpath.Set

// GetResetFields implements rest.ResetFieldsStrategy.
func (r resetFields) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return r }

// fieldPath parses a path such as "spec.replicas".
func fieldPath(dotted string) fieldpath.Path {
	var parts []any
	for name := range strings.SplitSeq(dotted, ".") {
		parts = append(parts, name)
	}
	return fieldpath.MakePathOrDie(parts...)
}

func isDryRun(options []string) bool { return len(options) > 0 }

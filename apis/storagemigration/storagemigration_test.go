package storagemigration

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestStorageVersionMigration(t *testing.T) {
	resourcetest.Rules(t, storageVersionMigrations, `
metadata: {name: secrets}
spec: {resource: {resource: secrets}}
`, []resourcetest.Rule{
		{Name: "a migration is accepted"},
		{Name: "a resource is required", Change: `spec: {resource: {resource: ""}}`, Want: []string{"spec.resource.resource: Required value: resource is required to be set"}},
		{Name: "a resource has no dots", Change: `spec: {resource: {resource: a.b}}`, Want: []string{`spec.resource.resource: Invalid value: "a.b": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`}},
		{Name: "the specification is immutable", Update: true, Change: `spec: {resource: {resource: pods}}`, Want: []string{`spec: Invalid value: {"resource":{"group":"","resource":"pods"}}: field is immutable`}},
		{Name: "the migrated version is a number", Status: true, Change: `status: {resourceVersion: a}`, Want: []string{`status.resourceVersion: Invalid value: "a": resource version is not well formed: a`}},
		{Name: "the migrated version is set once", Status: true, Was: `status: {resourceVersion: "1"}`, Change: `status: {resourceVersion: "2"}`, Want: []string{`status.resourceVersion: Invalid value: "2": field is immutable`}},
		{Name: "a migration ends once", Status: true,
			Was:    `status: {conditions: [{type: Succeeded, status: "True", reason: a, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`,
			Change: `status: {conditions: []}`, Want: []string{`status.conditions: Invalid value: []: Success condition cannot be set to false once it is true`}},
		{Name: "a migration that has ended may still be marked as running", Status: true,
			Was:    `status: {conditions: [{type: Running, status: "True", reason: a, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`,
			Change: `status: {conditions: [{type: Running, status: "True", reason: a, lastTransitionTime: "2026-01-02T03:04:05Z"}, {type: Succeeded, status: "True", reason: a, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`},
		{Name: "a group is a domain", Change: `spec: {resource: {group: A}}`, Want: []string{`spec.resource.group: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
	})
}

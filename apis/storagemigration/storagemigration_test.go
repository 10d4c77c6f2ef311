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
		{Name: "a resource is required", Change: `spec: {resource: {resource: ""}}`, Want: []string{"spec.resource.resource: Required value"}},
		{Name: "a group is a domain", Change: `spec: {resource: {group: A}}`, Want: []string{`spec.resource.group: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
	})
}

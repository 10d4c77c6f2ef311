package storageversion

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestStorageVersion(t *testing.T) {
	const server = `{apiServerID: a, encodingVersion: apps/v1, decodableVersions: [apps/v1, apps/v1beta1], servedVersions: [apps/v1]}`
	resourcetest.Rules(t, storageVersions, `metadata: {name: apps.deployments}`, []resourcetest.Rule{
		{Name: "a version without a status is accepted"},
		{Name: "a name has a group", Change: `metadata: {name: deployments}`,
			Want: []string{`metadata.name: Invalid value: "deployments": name must be in the form of <group>.<resource>`}},
		{Name: "the parts of a name are names", Change: `metadata: {name: a_.b_}`, Want: []string{
			`metadata.name: Invalid value: "a_.b_": the group segment a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`metadata.name: Invalid value: "a_.b_": the resource segment a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`}},
		{Name: "servers agree", Status: true, Change: `status: {commonEncodingVersion: apps/v1, storageVersions: [` + server + `]}`},
		{Name: "an agreement is stated", Status: true, Change: `status: {storageVersions: [` + server + `]}`,
			Want: []string{`status.commonEncodingVersion: Invalid value: null: the common encoding version is apps/v1`}},
		{Name: "an agreement is that of the servers", Status: true, Change: `status: {commonEncodingVersion: apps/v2, storageVersions: [` + server + `]}`,
			Want: []string{`status.commonEncodingVersion: Invalid value: "apps/v2": the actual common encoding version is apps/v1`}},
		{Name: "there is no agreement of none", Status: true, Change: `status: {commonEncodingVersion: v1}`, Want: []string{
			`status.commonEncodingVersion: Invalid value: "v1": should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet`}},
		{Name: "servers that differ state none", Status: true, Change: `status: {storageVersions: [` + server + `, {apiServerID: b, encodingVersion: v1, decodableVersions: [v1]}]}`},
		{Name: "servers differ", Status: true, Change: `status: {commonEncodingVersion: apps/v1, storageVersions: [` + server + `, ` + server + `]}`,
			Want: []string{`status.storageVersions[1].apiServerID: Duplicate value: "a"`}},
		{Name: "a server decodes what it encodes and serves", Status: true, Change: `status: {commonEncodingVersion: v1, storageVersions: [{apiServerID: a, encodingVersion: v1, decodableVersions: [v2], servedVersions: [v3]}]}`, Want: []string{
			`status.storageVersions[0].decodableVersions: Invalid value: ["v2"]: decodableVersions must include encodingVersion v1`,
			`status.storageVersions[0].servedVersions[0]: Invalid value: "v3": individual served version : v3 must be included in decodableVersions : [v2]`}},
		{Name: "a version may have a group", Status: true, Change: `status: {commonEncodingVersion: a/b/c, storageVersions: [{apiServerID: a, encodingVersion: a/b/c, decodableVersions: [a/b/c]}]}`, Want: []string{
			`status.storageVersions[0].decodableVersions[0]: Invalid value: "a/b/c": version part: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
			`status.storageVersions[0].encodingVersion: Invalid value: "a/b/c": version part: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`}},
		{Name: "conditions differ and are explained", Status: true, Change: `status: {conditions: [{type: A, status: "True", reason: a, message: a}, {type: A, status: "True"}]}`, Want: []string{
			`status.conditions[1].message: Required value`, `status.conditions[1].reason: Required value`,
			`status.conditions[1].type: Invalid value: "A": the type of the condition is not unique, it also appears in conditions[0]`}},
	})
}

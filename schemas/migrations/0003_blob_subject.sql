-- Install whose data a blob contains, such as the manifest of one of its jobs. An erasure finds the blob by it, even if no
-- event refers to the blob. Null for other blobs, and for those that several installs can share.
alter table blob add column subject text collate "C";
create index blob_subject on blob (subject) where subject is not null;

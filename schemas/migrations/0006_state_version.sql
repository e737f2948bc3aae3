-- Versions of the Terraform state of a component, encrypted by the runner. The server cannot read them. The newest version
-- of a component has the highest number.
create table state_version (
    install        text        collate "C" not null,
    component      text        collate "C" not null,
    number         bigint      not null,
    lineage        text        collate "C" not null,
    serial         bigint      not null,
    -- Fence of the execution that wrote the version: restore counter of the log, and position of the claim.
    fence_epoch    bigint      not null,
    fence_position bigint      not null,
    -- Keyed digest of the plaintext. It reveals nothing to a party without the key of the component.
    digest         text        collate "C" not null,
    -- True if the state has no resources, so that another lineage may follow.
    is_empty       boolean     not null,
    size           bigint      not null,
    ciphertext     bytea       not null,
    created_at     timestamptz not null,
    primary key (install, component, number)
);
-- Ciphertext cannot be compressed.
alter table state_version alter column ciphertext set storage external;

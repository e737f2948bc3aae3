-- Newest execution that may write the state of a component. Writes of earlier executions are rejected.
create table state_fence (
    install        text   collate "C" not null,
    component      text   collate "C" not null,
    -- As in state_version. After a decision of a user: position of the log at the time of the decision.
    fence_epoch    bigint not null,
    fence_position bigint not null,
    -- Job of the execution. Null after a decision of a user.
    job            text   collate "C",
    primary key (install, component)
);
